--- include "layout"
--- include "advance"
--- include "readings"
--- include "environment_totals"
--- include "tally"
--- include "note_alarm"
--- include "expire_member"
--- include "keeps_life"
--- include "origin_of_body"
--- include "finish"
local MOST_BYTES, FIRST_ATTEMPT, NO_ERROR = 16 * 1024 * 1024, '\0\0\0\1', '\0\0'
local WITHOUT_ORIGIN, WITH_ORIGIN = '\0\1', '\0\2'
local PLAIN_EXTRA = #PLAIN_BODY + struct.size(PLACE) + struct.size(READINGS)
-- Hand out up to `limit` messages of one queue under leases. Appends to `reply` the queue's ident, how
-- many there are, when the leases end, and each message; counts them in `handed`.
local function serve(q, now, limit, lease_ms, token, consumer, reply, handed)
  advance(q, now)
  if q.paused then return 0 end
  if q.concurrency > 0 then limit = math.min(limit, q.concurrency - q.running) end
  local totals = environment_totals(q)
  if totals[1] then limit = math.min(limit, tonumber(totals[1]) - tonumber(totals[3] or 0)) end
  if limit < 1 then return 0 end
  local members = redis.call('ZRANGE', q.heads_key, 0, limit - 1)
  local sub, pack, taken, ids, attempted, waits = string.sub, struct.pack, {}, {}, {}, {}
  local count, retried, counts = 0, false, {}
  for _, member in ipairs(members) do
    local attempts, _, available, expires = struct.unpack('>I4I8I8I8', member, 25)
    if expires <= now then
      expire_member(q, now, member, counts)
    else
      count = count + 1
      taken[count], ids[count], attempted[count] = member, sub(member, 9, 24), attempts + 1
      waits[count] = math.min(math.max(0, now - available), 4294967295)
      retried = retried or attempts > 0
    end
  end
  if count == 0 then
    finish(q, 'expire', counts, {}, now)
    return 0
  end
  local bodies = redis.call('HMGET', q.key.bodies, unpack(ids))
  local errors = retried and redis.call('HMGET', q.key.errors, unpack(ids)) or {}
  local deadline = now + (lease_ms > 0 and lease_ms or q.lease)
  local lease = pack('>I6', deadline) .. token .. string.char(#consumer) .. consumer
  local handed_out = pack('>I6', now) .. readings(q)
  -- Plain bodies of the same size share the end of their origin.
  local plain_size, plain_end, origin_from, keeps_all = nil, nil, -struct.size(ORIGIN), q.life_rule == 0
  -- As text: a number would be turned into text again for each message.
  local leases, deadlines, gone, size, ends = {}, {}, {}, 0, string.format('%.0f', deadline)
  local place_of_count = #reply + 2
  reply[place_of_count - 1], reply[place_of_count + 1] = q.ident, deadline
  for i, member in ipairs(taken) do
    local body, error = bodies[i] or string.rep('\0', 6), errors[i] or ''
    size = size + #body
    if i > 1 and size > MOST_BYTES then break end
    local attempt = attempted[i] == 1 and FIRST_ATTEMPT or pack('>I4', attempted[i])
    local front = sub(member, 1, 24) .. attempt .. sub(member, 29, 53)
    local version, origin = WITHOUT_ORIGIN, ''
    if (keeps_all or keeps_life(q, ids[i])) and string.byte(body, 6) >= PLACED + READ then
      if sub(body, 1, #PLAIN_BODY) == PLAIN_BODY then
        if #body ~= plain_size then
          plain_size, plain_end = #body, pack(ORIGIN_END, #body - PLAIN_EXTRA, 0)
        end
        version, origin = WITH_ORIGIN, sub(body, origin_from) .. plain_end
      else
        version, origin = WITH_ORIGIN, origin_of_body(body)
      end
    end
    leases[2 * i - 1], leases[2 * i] = ids[i], version .. lease .. front .. sub(member, 54) .. handed_out .. origin
    deadlines[2 * i - 1], deadlines[2 * i] = ends, ids[i]
    gone[i] = member
    reply[place_of_count + 1 + i] = front .. (error == '' and NO_ERROR or pack('>I2', #error) .. error) .. body
  end
  for i = #gone + 1, count do waits[i] = nil end
  handed.count = handed.count + #gone
  count = #gone
  reply[place_of_count] = count
  redis.call('HSET', q.key.leases, unpack(leases))
  redis.call('ZADD', q.key.deadlines, unpack(deadlines))
  redis.call('ZREM', q.heads_key, unpack(gone))
  if q.ordered then redis.call('ZREM', q.key.ready, unpack(gone)) end
  if redis.call('EXISTS', q.key.expiry) == 1 then redis.call('ZREM', q.key.expiry, unpack(gone)) end
  q.running = q.running + count
  tally(q, counts, 'dequeued', count)
  note_alarm(q, deadline)
  finish(q, 'dequeue', counts, waits, now)
  return count
end
