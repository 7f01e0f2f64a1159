--- include "open_lease"
-- The part of a lease that may be shown, without its token: when it ends (8 bytes) and the consumer's name; and the member.
local function held_by(lease)
  local deadline, _, consumer, member = open_lease(lease)
  return struct.pack('>I8', deadline) .. consumer, member
end
