--- include "layout"
--- include "alarm"
-- Put an available message in its place. In an ordered queue it waits in `lanes` if its ordering key has a
-- head already, unless it is that head coming back (`returning`). Without a key there is nothing to wait for.
-- `expiry` lists only members that would be found too late by looking at the front of `ready`. Without a sequence
-- number it gets the next. Answers its place, the member without its id, and whether it waits in `lanes`.
local function place(q, id, attempts, enqueued, available, expires, priority, order_key, returning, sequence)
  if not sequence then
    q.sequence = q.sequence + 1
    sequence = q.sequence
  end
  local number = struct.pack('>I8', sequence)
  local rest = struct.pack('>I4I8I8I8I1', attempts, enqueued, available, expires, priority) .. order_key
  local member = number .. id .. rest
  redis.call('ZADD', q.key.ready, q.ordered and available or (9 - priority) * BAND + available, member)
  if available >= q.top_available and expires >= q.top_expires then
    q.top_available, q.top_expires = available, expires
  else
    redis.call('ZADD', q.key.expiry, expires, member)
  end
  alarm(q, expires)
  if q.ordered then
    if returning or (q.by_key and order_key == '') or redis.call('HSETNX', q.key.locks, order_key, id) == 1 then
      redis.call('ZADD', q.key.heads, available, member)
    else
      redis.call('ZADD', q.key.lanes, 0, struct.pack('>I2', #order_key) .. order_key .. member)
      return number .. rest, true
    end
  end
  return number .. rest, false
end
