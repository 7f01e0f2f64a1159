--- include "layout"
-- What may be told of a lease: when it ends (8 bytes) and the consumer's name, without its token; and the member.
local function held_by(lease)
  local deadline, _, name, start = struct.unpack(LEASE, lease)
  return struct.pack('>I8', deadline) .. string.sub(lease, start, start + name - 1), string.sub(lease, start + name)
end
