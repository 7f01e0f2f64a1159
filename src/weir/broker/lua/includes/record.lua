--- include "call"
-- Keep this call's reply until the caller's next call in the slot.
local function record(reply)
  if CALL_NUMBER == 0 then return end
  redis.call('SET', SLOT_KEY, struct.pack('>I8', CALL_NUMBER) .. reply, 'PX', KEEP_MS)
end
