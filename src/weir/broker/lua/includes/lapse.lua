--- include "layout"
--- include "tally"
--- include "place"
--- include "release"
--- include "bury"
-- Return messages whose lease lapsed, or bury them after their last attempt. At most `bound`.
local function lapse(q, now, counts, bound)
  local ids = redis.call('ZRANGEBYSCORE', q.key.deadlines, '-inf', now, 'LIMIT', 0, bound)
  if #ids == 0 then return 0 end
  local leases = redis.call('HMGET', q.key.leases, unpack(ids))
  redis.call('ZREM', q.key.deadlines, unpack(ids))
  redis.call('HDEL', q.key.leases, unpack(ids))
  local places = {}
  for i, id in ipairs(ids) do
    local deadline, _, size, start = struct.unpack(LEASE, leases[i])
    local consumer = string.sub(leases[i], start, start + size - 1)
    local sequence, _, attempts, enqueued, _, expires, priority, rest =
      struct.unpack(MEMBER, leases[i], start + size)
    local order_key = string.sub(leases[i], rest)
    q.running = q.running - 1
    if attempts >= q.max_attempts then
      local error = redis.call('HGET', q.key.errors, id) or ('the lease of `' .. consumer .. '` lapsed')
      bury(q, now, id, attempts, enqueued, priority, DIED.lapsed, error)
      release(q, {order_key})
      tally(q, counts, 'dead', 1)
    else
      places[#places + 1] = id
      places[#places + 1] =
        place(q, id, attempts, enqueued, deadline, expires, priority, order_key, true, q.ordered and sequence or nil)
    end
  end
  if #places > 0 then redis.call('HSET', q.key.places, unpack(places)) end
  tally(q, counts, 'lapsed', #ids)
  return #ids
end
