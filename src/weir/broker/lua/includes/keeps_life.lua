-- Whether the life of a message is kept: of all, of none, or of one in so many, as its id decides.
local function keeps_life(q, id)
  local rule = q.life_rule
  return rule == 0 or (rule > 1 and struct.unpack('>I4', id, 13) % rule == 0)
end
