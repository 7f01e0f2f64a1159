--- include "layout"
--- include "place_of_body"
-- The member of a waiting message, found by its id: its place is noted in `places` if it moved, else at the end of its
-- body. Nil if there is none; nil and true if an older program put it in, and it is not indexed yet.
local function member_of(q, id)
  local size, place = struct.size(PLACE), redis.call('HGET', q.key.places, id)
  if place and string.byte(place) == 1 then
    local key_at = size + struct.size(WAIT) + 1
    if string.byte(place, size + 1) >= 4 then key_at = key_at + 2 + struct.unpack('>I2', place, key_at) end
    place = '\0' .. string.sub(place, 2, size) .. string.sub(place, key_at)
  elseif not place then
    local body = redis.call('HGET', q.key.bodies, id)
    if not body then return nil, false end
    place = place_of_body(body)
    if not place then return nil, redis.call('HGET', q.key.base, 'index') ~= 'all' end
    if q.by_key then place = place .. string.sub(body, 7, 6 + string.byte(body)) end
  end
  return string.sub(place, 1, 8) .. id .. string.sub(place, 9), false
end
