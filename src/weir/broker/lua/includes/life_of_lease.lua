--- include "end_lease"
--- include "note_attempt"
-- The wait of a message that ends under a lease, with that attempt in its log, and when the attempt began (nil if an older
-- program handed it out).
local function life_of_lease(q, m)
  local w = end_lease(q, m.id, m.member, m.handed_out, m.at)
  note_attempt(q, w, m.id, m.handed_out, m.at, m.how, m.consumer)
  return w, m.handed_out and struct.unpack('>I6', m.handed_out) or nil
end
