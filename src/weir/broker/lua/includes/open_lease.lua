--- include "layout"
local HANDED_OUT_SIZE = struct.size(HANDED_OUT)
-- What a lease holds: its end, its token, the consumer, the member, and when and at which readings of the clocks it was
-- handed out (nil if an older program did).
local function open_lease(lease)
  local version, deadline, token, name, start = struct.unpack(LEASE, lease)
  local consumer = string.sub(lease, start, start + name - 1)
  if version == 0 then return deadline, token, consumer, string.sub(lease, start + name), nil end
  local member = string.sub(lease, start + name, -HANDED_OUT_SIZE - 1)
  return deadline, token, consumer, member, string.sub(lease, -HANDED_OUT_SIZE)
end
