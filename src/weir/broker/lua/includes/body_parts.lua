--- include "layout"
-- Where the parts of a body are: the first byte of its headers, the first of its payload, and the last of its payload.
local function body_parts(body)
  local key, idempotency, low, high = struct.unpack('<I1I1I3I1', body)
  local last = #body
  if high >= PLACED then last, high = last - struct.size(PLACE), high - PLACED end
  if high >= READ then last, high = last - struct.size(READINGS), high - READ end
  local headers = high * 16777216 + low
  return 7 + key + idempotency, 7 + key + idempotency + headers, last
end
