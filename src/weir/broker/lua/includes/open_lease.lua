--- include "layout"
local HANDED_OUT_SIZE, ORIGIN_SIZE, ORIGIN_END_SIZE = struct.size(HANDED_OUT), struct.size(ORIGIN), struct.size(ORIGIN_END)
-- The parts of a lease: its end, its token, the consumer, the member, when and at which readings of the clocks the message
-- was handed out (nil if an older program did that), and its origin (nil if the lease holds none).
local function open_lease(lease)
  local version, deadline, token, name, start = struct.unpack(LEASE, lease)
  local consumer = string.sub(lease, start, start + name - 1)
  if version == 0 then return deadline, token, consumer, string.sub(lease, start + name), nil, nil end
  local last, origin = #lease, nil
  if version == 2 then
    last = last - ORIGIN_SIZE - string.byte(lease, -1) - ORIGIN_END_SIZE
    origin = string.sub(lease, last + 1)
  end
  local member = string.sub(lease, start + name, last - HANDED_OUT_SIZE)
  return deadline, token, consumer, member, string.sub(lease, last - HANDED_OUT_SIZE + 1, last), origin
end
