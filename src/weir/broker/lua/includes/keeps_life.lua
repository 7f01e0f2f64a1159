-- Whether the life of a message is kept. A queue keeps all lives, none, or one in `life_rule`, which the id decides.
local function keeps_life(q, id)
  local rule = q.life_rule
  return rule == 0 or (rule > 1 and struct.unpack('>I4', id, 13) % rule == 0)
end
