--- include "keys"
-- What the lane remembers of this very call, a letter a message, or nil if it is new.
local function named_call(lane, id)
  local known = redis.call('HGET', shard_key.calls, lane)
  if not known then return nil end
  local size, start = struct.unpack('>I2', known)
  if string.sub(known, start, start + size - 1) ~= id then return nil end
  return string.sub(known, start + size)
end
