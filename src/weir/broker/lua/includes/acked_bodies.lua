--- include "log_layout"
--- include "layout"
-- The bodies of messages that are acked now, for the log; false for each body that would bring the call over its bound.
local function acked_bodies(q, ids, leases)
  -- An estimate without reading: the payload sizes in the leases, and 4,096 bytes per message for the rest of its body.
  local bytes = #ids * 4096
  for _, lease in ipairs(leases) do
    bytes = bytes + (string.byte(lease, 2) == 2 and struct.unpack('>I4', lease, #lease - 4) or LOG_CALL_BYTES)
  end
  if bytes <= LOG_CALL_BYTES then return redis.call('HMGET', q.key.bodies, unpack(ids)) end
  -- Bodies may be large. Ask for the size of each, and read it only if it fits.
  local found, read = {}, 0
  for i, id in ipairs(ids) do
    local size = redis.call('HSTRLEN', q.key.bodies, id)
    local fits = size > 0 and read + size <= LOG_CALL_BYTES
    found[i] = fits and redis.call('HGET', q.key.bodies, id)
    if fits then read = read + size end
  end
  return found
end
