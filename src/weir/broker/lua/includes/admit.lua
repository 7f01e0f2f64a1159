--- include "keys"
--- include "layout"
--- include "alarm"
--- include "place"
--- include "postpone"
--- include "tally"
-- Write the messages that an enqueue call accepted: bodies first, then their places, then the
-- idempotency keys with the ends of their windows. `arrivals` are {id, available, expires, priority, key}. The fast path: an arrival without
-- a time goes straight to the end of an unordered queue, and such members of one call share their tail.
local function admit(q, now, arrivals, bodies, seen, forget_at, counts)
  if #arrivals == 0 then return end
  redis.call('HSET', q.key.bodies, unpack(bodies))
  local pack = struct.pack
  local ready, aside, straight, tail, tail_of, score = {}, {}, 0, nil, nil, nil
  local postponed = false
  for _, arrival in ipairs(arrivals) do
    local id, available, expires, priority = arrival[1], arrival[2], arrival[3], arrival[4]
    if not available then
      if tail_of ~= expires * 10 + priority then
        tail, tail_of = pack('>I4I8I8I8I1', 0, now, now, expires, priority), expires * 10 + priority
        score = (9 - priority) * BAND + now
        alarm(q, expires)
      end
      q.sequence = q.sequence + 1
      local member = pack('>I8', q.sequence) .. id .. tail
      straight = straight + 2
      ready[straight - 1], ready[straight] = score, member
      if now >= q.top_available and expires >= q.top_expires then
        q.top_available, q.top_expires = now, expires
      else
        aside[#aside + 1] = expires
        aside[#aside + 1] = member
      end
    elseif available > now then
      postpone(q, 0, id, 0, now, available, expires, priority, arrival[5])
      postponed = true
    else
      place(q, id, 0, now, available, expires, priority, arrival[5], false)
    end
  end
  if straight > 0 then redis.call('ZADD', q.key.ready, unpack(ready)) end
  if #aside > 0 then redis.call('ZADD', q.key.expiry, unpack(aside)) end
  local answers, ends, keys = {}, {}, 0
  for idempotency, answer in pairs(seen) do
    keys = keys + 2
    answers[keys - 1], answers[keys] = idempotency, answer
    ends[keys - 1], ends[keys] = forget_at[idempotency], idempotency
    alarm(q, forget_at[idempotency])
  end
  if keys > 0 then
    redis.call('HSET', q.key.seen, unpack(answers))
    redis.call('ZADD', q.key.seen_until, unpack(ends))
  end
  if postponed then redis.call('PUBLISH', shard_key.wake, q.ident) end
  tally(q, counts, 'enqueued', #arrivals)
end
