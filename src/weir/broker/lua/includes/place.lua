--- include "layout"
--- include "note_alarm"
-- Put an available message in its place (`stands`, see `pack_place`). In an ordered queue it waits in `lanes` if its
-- ordering key has a head already, unless it is that head coming back (`returning`). Without a key there is nothing to
-- wait for. `expiry` lists only members that would be found too late by looking at the front of `ready`: those that another
-- message, which expires later, stands or may come to stand before (see `first_unlisted`). Answers whether the message waits
-- in `lanes`.
local function place(q, id, stands, available, expires, priority, order_key, returning)
  local member = string.sub(stands, 1, 8) .. id .. string.sub(stands, 9) .. order_key
  redis.call('ZADD', q.key.ready, q.ordered and available or (9 - priority) * BAND + available, member)
  if available >= q.top_available and expires >= q.top_expires then
    q.top_available, q.top_expires = available, expires
  else
    redis.call('ZADD', q.key.expiry, expires, member)
    q.top_expires = math.max(q.top_expires, expires)
  end
  note_alarm(q, expires)
  if not q.ordered then return false end
  if returning or (q.by_key and order_key == '') or redis.call('HSETNX', q.key.locks, order_key, id) == 1 then
    redis.call('ZADD', q.key.heads, available, member)
    return false
  end
  redis.call('ZADD', q.key.lanes, 0, struct.pack('>I2', #order_key) .. order_key .. member)
  return true
end
