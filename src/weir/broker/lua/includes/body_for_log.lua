--- include "log_layout"
-- The body of a message that ends now, for the log. False if this call has no room for it; then the body is not read.
local function body_for_log(q, id)
  local bytes = (q.logged and q.logged.bytes or 0) + redis.call('HSTRLEN', q.key.bodies, id)
  return bytes <= LOG_CALL_BYTES and redis.call('HGET', q.key.bodies, id)
end
