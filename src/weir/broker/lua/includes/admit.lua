--- include "keys"
--- include "layout"
--- include "alarm"
--- include "place"
--- include "postpone"
--- include "readings"
--- include "tally"
-- Write the messages that an enqueue call accepted: bodies first, each with its place and the readings of the clocks at
-- its end, then their places, then the idempotency keys. `arrivals` are {id, available, expires, priority, key}. The fast
-- path: an arrival without a time goes straight to the end of an unordered queue, and such members of one call share
-- their tail.
local function admit(q, now, arrivals, bodies, seen, counts)
  if #arrivals == 0 then return end
  local pack = struct.pack
  local ready, aside, straight, tail, tail_of, score = {}, {}, 0, nil, nil, nil
  local timed, postponed, start, noted = {}, false, readings(q), nil
  for i, arrival in ipairs(arrivals) do
    local id, available, expires, priority = arrival[1], arrival[2], arrival[3], arrival[4]
    if not available then
      if tail_of ~= expires * 10 + priority then
        tail, tail_of = pack('>I4I8I8I8I1', 0, now, now, expires, priority), expires * 10 + priority
        noted = tail .. start
        score = (9 - priority) * BAND + now
        alarm(q, expires)
      end
      q.sequence = q.sequence + 1
      local number = pack('>I8', q.sequence)
      local member = number .. id .. tail
      bodies[2 * i] = bodies[2 * i] .. number .. noted
      straight = straight + 2
      ready[straight - 1], ready[straight] = score, member
      if now >= q.top_available and expires >= q.top_expires then
        q.top_available, q.top_expires = now, expires
      else
        aside[#aside + 1] = expires
        aside[#aside + 1] = member
      end
    else
      local sequence = 0
      if available <= now then
        q.sequence = q.sequence + 1
        sequence = q.sequence
      end
      bodies[2 * i] = bodies[2 * i] .. pack(PLACE, sequence, 0, now, available, expires, priority) .. start
      arrival[6] = sequence
      timed[#timed + 1] = arrival
    end
  end
  redis.call('HSET', q.key.bodies, unpack(bodies))
  for _, arrival in ipairs(timed) do
    local id, available, expires, priority, order_key, sequence = unpack(arrival)
    if sequence == 0 then
      postpone(q, 0, id, 0, now, available, expires, priority, order_key)
      postponed = true
    else
      place(q, id, 0, now, available, expires, priority, order_key, false, sequence)
    end
  end
  if straight > 0 then redis.call('ZADD', q.key.ready, unpack(ready)) end
  if #aside > 0 then redis.call('ZADD', q.key.expiry, unpack(aside)) end
  for idempotency, answer in pairs(seen) do
    redis.call('HSET', q.key.seen, idempotency, answer)
    redis.call('ZADD', q.key.seen_until, now + q.window, idempotency)
    alarm(q, now + q.window)
  end
  if postponed then redis.call('PUBLISH', shard_key.wake, q.ident) end
  tally(q, counts, 'enqueued', #arrivals)
end
