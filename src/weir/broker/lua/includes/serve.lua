--- include "layout"
--- include "turns"
--- include "advance"
--- include "readings"
--- include "environment_totals"
--- include "tally"
--- include "note_alarm"
--- include "bury"
--- include "expire_member"
--- include "keeps_life"
--- include "origin_of_body"
--- include "finish"
local FIRST_ATTEMPT, NO_ERROR = '\0\0\0\1', '\0\0'
local WITHOUT_ORIGIN, WITH_ORIGIN = '\0\1', '\0\2'
local PLAIN_EXTRA = #PLAIN_BODY + struct.size(PLACE) + struct.size(READINGS)
-- Hand out up to `limit` messages of one queue under leases, and fewer if the reply is full. Appends to `reply` the queue's
-- ident, how many there are, when the leases end, and each message; counts them in `handed`, with their bytes. Messages that
-- are too old expire, and those behind them are looked at; if they are many, the queue is due at once, so that the caller
-- comes again.
local function serve(q, now, limit, lease_ms, token, consumer, reply, handed)
  -- So many messages expire in one call, which keeps the script short.
  local MOST_EXPIRED = 200
  -- How long the bodies of a queue may be that an older program filled, and what else a message may bring.
  local UNKNOWN_BODY, BODY_EXTRA, ERROR_EXTRA = 2 * 1024 * 1024, 128, 16 * 1024
  advance(q, now)
  if q.paused then return 0 end
  if q.concurrency > 0 then limit = math.min(limit, q.concurrency - q.running) end
  local totals = environment_totals(q)
  if totals[1] then limit = math.min(limit, tonumber(totals[1]) - tonumber(totals[3] or 0)) end
  if limit < 1 then return 0 end
  local sub, pack, taken, ids, attempted, waits = string.sub, struct.pack, {}, {}, {}, {}
  local count, retried, counts = 0, false, {}
  repeat
    local members, more = redis.call('ZRANGE', q.heads_key, 0, limit - 1), false
    for _, member in ipairs(members) do
      local attempts, _, available, expires = struct.unpack('>I4I8I8I8', member, 25)
      if expires > now then
        count = count + 1
        taken[count], ids[count], attempted[count] = member, sub(member, 9, 24), attempts + 1
        waits[count] = math.min(math.max(0, now - available), 4294967295)
        retried = retried or attempts > 0
      elseif handed.expired < MOST_EXPIRED and deaths.bytes < deaths.most_bytes then
        expire_member(q, now, member, counts)
        handed.expired, more = handed.expired + 1, true
      else
        note_alarm(q, now)
        more = false
        break
      end
    end
  until count > 0 or not more
  if count == 0 then
    finish(q, 'expire', counts, {}, now)
    return 0
  end
  local deadline = now + (lease_ms > 0 and lease_ms or q.lease)
  local lease = pack('>I6', deadline) .. token .. string.char(#consumer) .. consumer
  local handed_out = pack('>I6', now) .. readings(q)
  -- Plain bodies of the same size share the end of their origin.
  local plain_size, plain_end, origin_from, keeps_all = nil, nil, -struct.size(ORIGIN), q.life_rule == 0
  -- As text: a number would be turned into text again for each message.
  local leases, deadlines, gone, ends = {}, {}, {}, string.format('%.0f', deadline)
  -- Bodies are read so many at a time that the reply has room for them. Short ones are read at once.
  local longest = (q.largest or UNKNOWN_BODY) + BODY_EXTRA + (retried and ERROR_EXTRA or 0)
  local read, bodies, errors, skipped = 0, nil, nil, 0
  local place_of_count = #reply + 2
  reply[place_of_count - 1], reply[place_of_count + 1] = q.ident, deadline
  for i, member in ipairs(taken) do
    if i > read then
      skipped, read = read, math.min(count, read + math.max(1, math.floor((MAX_REPLY_BYTES - handed.bytes) / longest)))
      bodies = redis.call('HMGET', q.key.bodies, unpack(ids, i, read))
      errors = retried and redis.call('HMGET', q.key.errors, unpack(ids, i, read)) or {}
    end
    local body, error = bodies[i - skipped] or string.rep('\0', 6), errors[i - skipped] or ''
    local size = handed.bytes + #body + #error
    if i > 1 and size > MAX_REPLY_BYTES then break end
    handed.bytes = size
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
  handed.full = handed.bytes + longest > MAX_REPLY_BYTES
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
