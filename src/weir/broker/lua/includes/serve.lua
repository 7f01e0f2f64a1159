--- include "layout"
--- include "tally"
--- include "alarm"
--- include "expire_member"
--- include "finish"
local MOST_BYTES = 16 * 1024 * 1024
-- Hand out up to `limit` messages of one queue under leases. Appends to `reply` the queue's ident, how
-- many there are, and each message; to `handed` what a retry needs to find them again.
local function serve(q, now, limit, lease_ms, token, consumer, reply, handed)
  if q.paused then return 0 end
  if q.concurrency > 0 then limit = math.min(limit, q.concurrency - q.running) end
  local totals = redis.call('HMGET', q.environment_key.base, 'limit', 'running')
  if totals[1] then limit = math.min(limit, tonumber(totals[1]) - tonumber(totals[2] or 0)) end
  if limit < 1 then return 0 end
  local members = redis.call('ZRANGE', q.heads_key, 0, limit - 1)
  local taken, ids, retried, counts = {}, {}, false, {}
  for _, member in ipairs(members) do
    local sequence, id, attempts, enqueued, available, expires, priority, rest = struct.unpack(MEMBER, member)
    if expires <= now then
      expire_member(q, now, member, counts)
    else
      taken[#taken + 1] = {member, sequence, id, attempts, enqueued, available, expires, priority, rest}
      ids[#ids + 1] = id
      retried = retried or attempts > 0
    end
  end
  if #taken == 0 then
    finish(q, 'expire', counts, {}, now)
    return 0
  end
  local bodies = redis.call('HMGET', q.key.bodies, unpack(ids))
  local errors = retried and redis.call('HMGET', q.key.errors, unpack(ids)) or {}
  local deadline = now + (lease_ms > 0 and lease_ms or q.lease)
  local lease = struct.pack(LEASE, deadline, token, #consumer) .. consumer
  local leases, deadlines, gone, waits, size = {}, {}, {}, {}, 0
  local place_of_count = #reply + 2
  reply[place_of_count - 1] = q.ident
  for i, t in ipairs(taken) do
    local body, error = bodies[i] or string.rep('\0', 6), errors[i] or ''
    size = size + #body
    if i > 1 and size > MOST_BYTES then break end
    local member, sequence, id, attempts, enqueued, available, expires, priority, rest = unpack(t)
    local wait = math.max(0, now - available)
    leases[#leases + 1] = id
    leases[#leases + 1] = lease .. struct.pack(MEMBER, sequence, id, attempts + 1, enqueued, available,
      expires, priority) .. string.sub(member, rest)
    deadlines[#deadlines + 1] = deadline
    deadlines[#deadlines + 1] = id
    gone[i] = member
    waits[i] = math.min(wait, 4294967295)
    reply[place_of_count + i] = struct.pack(HANDED, id, attempts + 1, enqueued, available, deadline, wait,
      priority, #error) .. error .. body
    handed[#handed + 1] = id
  end
  local count = #gone
  reply[place_of_count] = count
  redis.call('HSET', q.key.leases, unpack(leases))
  redis.call('ZADD', q.key.deadlines, unpack(deadlines))
  redis.call('ZREM', q.heads_key, unpack(gone))
  if q.ordered then redis.call('ZREM', q.key.ready, unpack(gone)) end
  if redis.call('EXISTS', q.key.expiry) == 1 then redis.call('ZREM', q.key.expiry, unpack(gone)) end
  q.running = q.running + count
  tally(q, counts, 'dequeued', count)
  alarm(q, deadline)
  finish(q, 'dequeue', counts, waits, now)
  return count
end
