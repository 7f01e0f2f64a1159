--- include "open_lease"
-- What may be told of a lease: when it ends (8 bytes) and the consumer's name, without its token; and the member.
local function held_by(lease)
  local deadline, _, consumer, member = open_lease(lease)
  return struct.pack('>I8', deadline) .. consumer, member
end
