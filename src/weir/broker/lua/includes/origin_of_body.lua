--- include "layout"
--- include "body_parts"
-- The origin of a message, from its body: ORIGIN, the key, ORIGIN_END. If an older program wrote the body, ORIGIN is zeros.
local function origin_of_body(body)
  local size, origin = struct.size(ORIGIN), nil
  if string.byte(body, 6) >= PLACED + READ then
    origin = string.sub(body, -size)
  else
    origin = string.rep('\0', size)
  end
  local _, payload, last = body_parts(body)
  local key = string.sub(body, 7, 6 + string.byte(body))
  return origin .. key .. struct.pack(ORIGIN_END, last - payload + 1, #key)
end
