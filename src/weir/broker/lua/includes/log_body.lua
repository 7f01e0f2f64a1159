--- include "log_layout"
--- include "body_parts"
-- Keep the headers and payload of a message that ends now, for the log of its queue; `finish` emits them beside the life
-- that was written down before. `body` is false if the log has no room for it.
local function log_body(q, body)
  local logged = q.logged or {bytes = 0, heads = {}, contents = {}}
  q.logged = logged
  local at = #logged.heads + 1
  if not body or logged.bytes + #body > LOG_CALL_BYTES then
    logged.heads[at], logged.contents[at] = struct.pack(LOGGED, 1, 0, 0, 0), ''
    return
  end
  local headers, payload, last = body_parts(body)
  local idempotency = string.byte(body, 2)
  logged.bytes = logged.bytes + #body
  logged.heads[at] = struct.pack(LOGGED, 0, idempotency, payload - headers, last - payload + 1)
  logged.contents[at] = string.sub(body, headers - idempotency, last)
end
