--- include "layout"
local PLACE_SIZE = struct.size(PLACE)
-- The member of a waiting message, found by its id: its place is noted in `places` if it moved, else at the end of its
-- body. Nil if there is none; nil and true if an older program put it in, and it is not indexed yet.
local function member_of(q, id)
  local place = redis.call('HGET', q.key.places, id)
  if not place then
    local body = redis.call('HGET', q.key.bodies, id)
    if not body then return nil, false end
    if string.byte(body, 6) < PLACED then return nil, redis.call('HGET', q.key.base, 'index') ~= 'all' end
    place = string.sub(body, -PLACE_SIZE)
    if q.by_key then place = place .. string.sub(body, 7, 6 + string.byte(body)) end
  end
  return string.sub(place, 1, 8) .. id .. string.sub(place, 9), false
end
