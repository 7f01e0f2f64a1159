--- include "call"
-- The reply that this call gave before, if it already ran and its reply was lost; nil the first time.
-- 'stale': the caller gave this call up and made a later one, so this call must change nothing.
local function recorded()
  if CALL_NUMBER == 0 then return nil end
  local record = redis.call('GET', SLOT_KEY)
  if not record then return nil end
  local number = struct.unpack('>I8', record)
  if number < CALL_NUMBER then return nil end
  if number > CALL_NUMBER then return 'stale' end
  return string.sub(record, 9)
end
