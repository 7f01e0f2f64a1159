--- include "log_layout"
-- The body of a message that ends now, for the log; false if this call has no room for it, which then reads nothing.
local function body_for_log(q, id)
  local bytes = (q.logged and q.logged.bytes or 0) + redis.call('HSTRLEN', q.key.bodies, id)
  return bytes <= LOG_CALL_BYTES and redis.call('HGET', q.key.bodies, id)
end
