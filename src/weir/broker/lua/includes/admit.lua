--- include "keys"
--- include "layout"
--- include "alarm"
--- include "place"
--- include "postpone"
--- include "tally"
-- Write the messages that an enqueue call accepted: bodies first, then their places, then the
-- idempotency keys. `arrivals` are {id, available, expires, priority, lane}.
local function admit(q, now, arrivals, bodies, seen, counts)
  if #arrivals == 0 then return end
  redis.call('HSET', q.key.bodies, unpack(bodies))
  local ready, aside, postponed = {}, {}, false
  for _, arrival in ipairs(arrivals) do
    local id, available, expires, priority, lane = unpack(arrival)
    if available > now then
      postpone(q, 0, id, 0, now, available, expires, priority, lane)
      postponed = true
    elseif q.ordered then
      place(q, id, 0, now, available, expires, priority, lane, false)
    else
      q.sequence = q.sequence + 1
      local member = struct.pack(MEMBER, q.sequence, id, 0, now, available, expires, priority)
      ready[#ready + 1] = (9 - priority) * BAND + available
      ready[#ready + 1] = member
      if available >= q.top_available and expires >= q.top_expires then
        q.top_available, q.top_expires = available, expires
      else
        aside[#aside + 1] = expires
        aside[#aside + 1] = member
      end
      alarm(q, expires)
    end
  end
  if #ready > 0 then redis.call('ZADD', q.key.ready, unpack(ready)) end
  if #aside > 0 then redis.call('ZADD', q.key.expiry, unpack(aside)) end
  for idempotency, answer in pairs(seen) do
    redis.call('HSET', q.key.seen, idempotency, answer)
    redis.call('ZADD', q.key.seen_until, now + q.window, idempotency)
    alarm(q, now + q.window)
  end
  if postponed then redis.call('PUBLISH', shard_key.wake, q.ident) end
  tally(q, counts, 'enqueued', #arrivals)
end
