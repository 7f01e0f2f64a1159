--- include "call"
--- include "keys"
--- include "layout"
--- include "note_alarm"
--- include "note_largest"
--- include "place"
--- include "postpone"
--- include "readings"
--- include "tally"
-- Write the messages that an enqueue call accepted: first their bodies, then their places, then the idempotency keys with
-- the ends of their windows. `bodies` holds ids and bodies in turn; each body gets its place and the readings of the clocks
-- at its end. `timed` holds {available, key} for each message that is not available at once, or is in an ordered queue. All
-- others take the fast path: they go straight to the end of the queue, and their members share a tail.
local function admit(q, now, bodies, expiries, priorities, timed, seen, forget_at, counts)
  if #expiries == 0 then return end
  if q.depth_before + q.running_before == 0 then q.top_available, q.top_expires = 0, 0 end
  local pack, start, sequence = struct.pack, readings(q), q.sequence
  local ready, aside, straight, postponed = {}, {}, 0, false
  local tail, noted, score, tail_expires, tail_priority, largest = nil, nil, nil, nil, nil, 0
  for i, expires in ipairs(expiries) do
    local priority, apart, size = priorities[i], timed[i], #bodies[2 * i]
    if size > largest then largest = size end
    if not apart then
      if expires ~= tail_expires or priority ~= tail_priority then
        tail_expires, tail_priority = expires, priority
        tail = pack('>I4I8I8I8I1', 0, now, now, expires, priority)
        -- As text: a number would be turned into text again for each message.
        noted, score = tail .. start, string.format('%.0f', (9 - priority) * BAND + now)
        note_alarm(q, expires)
      end
      sequence = sequence + 1
      local number = pack('>I8', sequence)
      local member = number .. bodies[2 * i - 1] .. tail
      bodies[2 * i] = bodies[2 * i] .. number .. noted
      straight = straight + 2
      ready[straight - 1], ready[straight] = score, member
      if now >= q.top_available and expires >= q.top_expires then
        q.top_available, q.top_expires = now, expires
      else
        aside[#aside + 1] = expires
        aside[#aside + 1] = member
        if expires > q.top_expires then q.top_expires = expires end
      end
    else
      local available = apart[1]
      if available <= now then sequence = sequence + 1 end
      apart[3] = pack(PLACE, available <= now and sequence or 0, 0, now, available, expires, priority)
      bodies[2 * i] = bodies[2 * i] .. apart[3] .. start
    end
  end
  if largest > MAX_BODY then error('TOOLONG body') end
  q.sequence = sequence
  redis.call('HSET', q.key.bodies, unpack(bodies))
  note_largest(q, largest)
  if straight < 2 * #expiries then
    for i, expires in ipairs(expiries) do
      local apart = timed[i]
      if apart and apart[1] > now then
        postpone(q, bodies[2 * i - 1], apart[3], 0, apart[1], expires, apart[2])
        postponed = true
      elseif apart then
        place(q, bodies[2 * i - 1], apart[3], apart[1], expires, priorities[i], apart[2], false)
      end
    end
  end
  if straight > 0 then redis.call('ZADD', q.key.ready, unpack(ready)) end
  if #aside > 0 then redis.call('ZADD', q.key.expiry, unpack(aside)) end
  local answers, ends, keys = {}, {}, 0
  for idempotency, answer in pairs(seen) do
    keys = keys + 2
    answers[keys - 1], answers[keys] = idempotency, answer
    ends[keys - 1], ends[keys] = forget_at[idempotency], idempotency
    note_alarm(q, forget_at[idempotency])
  end
  if keys > 0 then
    redis.call('HSET', q.key.seen, unpack(answers))
    redis.call('ZADD', q.key.seen_until, unpack(ends))
  end
  if postponed then redis.call('PUBLISH', shard_key.wake, q.ident) end
  tally(q, counts, 'enqueued', #expiries)
end
