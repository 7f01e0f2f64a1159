--- include "life_layout"
--- include "wait_until"
-- The wait of a message that ends while it waits, and when its last attempt began (nil if it had none).
local function life_of_wait(q, now, m)
  local w, began, at = wait_until(q, m.id, m.member, m.where, now), nil, 2
  for _ = 1, w.log and string.byte(w.log) or 0 do
    local size
    began, _, _, size = struct.unpack(LIFE_ATTEMPT, w.log, at)
    at = at + struct.size(LIFE_ATTEMPT) + size
  end
  return w, began
end
