--- include "layout"
-- Where the parts of a body are: the first byte of its headers, the first of its payload, and the last of that.
local function body_parts(body)
  local key, idempotency, headers = struct.unpack('<I1I1I4', body)
  local last = #body
  if headers >= PLACED * 16777216 then
    headers, last = headers - PLACED * 16777216, last - struct.size(PLACE)
  end
  return 7 + key + idempotency, 7 + key + idempotency + headers, last
end
