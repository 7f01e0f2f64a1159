--- include "layout"
--- include "tally"
--- include "open_lease"
--- include "let_go"
--- include "end_lease"
--- include "free_wait"
--- include "note_wait"
--- include "pack_place"
--- include "place"
--- include "release"
--- include "bury"
--- include "note_attempt"
--- include "end_life"
--- include "lapse_horizon"
-- Return messages whose lease lapsed, or bury them after their last attempt. At most `bound`, and fewer if many bytes die.
local function lapse(q, now, counts, bound)
  local ids = redis.call('ZRANGEBYSCORE', q.key.deadlines, '-inf', now, 'LIMIT', 0, bound)
  local horizon = #ids > 0 and lapse_horizon(now) or now
  if horizon < now then ids = redis.call('ZRANGEBYSCORE', q.key.deadlines, '-inf', horizon, 'LIMIT', 0, bound) end
  if #ids == 0 then return 0 end
  local leases = redis.call('HMGET', q.key.leases, unpack(ids))
  local places, done = {}, {}
  for i, id in ipairs(ids) do
    if deaths.bytes >= deaths.most_bytes then break end
    done[i] = id
    local deadline, _, consumer, member, handed_out, origin = open_lease(leases[i])
    local sequence, _, attempts, enqueued, _, expires, priority, rest = struct.unpack(MEMBER, member)
    local order_key = string.sub(member, rest)
    if attempts >= q.max_attempts then
      local error = redis.call('HGET', q.key.errors, id) or ('the lease of `' .. consumer .. '` lapsed')
      end_life(q, now, {
        id = id, member = member, outcome = ENDED.dead, reason = DIED.lapsed + 1, handed_out = handed_out,
        consumer = consumer, origin = origin, at = deadline, how = ATTEMPT.lapsed,
      })
      bury(q, now, id, attempts, enqueued, priority, DIED.lapsed, error)
      release(q, {order_key}, now, {id})
      tally(q, counts, 'dead', 1)
    else
      local w = end_lease(q, id, member, handed_out, deadline)
      note_attempt(q, w, id, handed_out, deadline, ATTEMPT.lapsed, consumer)
      free_wait(q, w, deadline)
      local stands =
        pack_place(q, q.ordered and sequence or nil, attempts, enqueued, deadline, expires, priority)
      place(q, id, stands, deadline, expires, priority, order_key, true)
      places[#places + 1] = id
      places[#places + 1] = note_wait(stands, order_key, w)
    end
  end
  if #places > 0 then redis.call('HSET', q.key.places, unpack(places)) end
  let_go(q, done)
  tally(q, counts, 'lapsed', #done)
  return #done
end
