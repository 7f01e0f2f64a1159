-- enqueue: put messages in; each is accepted, known already, refused or gated. Its first write is HSET,
-- which a server that is out of memory refuses, so it changes everything or nothing.
-- ARGV  7 ident, 8 '1' to pass closed gates, 9… for each message what the script reads (ARRIVAL, then
--       key, idempotency key and digest) and the body
-- Reply {'ok', one letter a message: a accepted, d duplicate, k key reused, f full, g gated, then the
--       16-byte ids of the first messages of all d and k, in order} | {'unknown'} | {'stale'}
--- include "call"
--- include "clock"
--- include "keys"
--- include "layout"
--- include "recorded"
--- include "record"
--- include "load_queue"
--- include "depth"
--- include "alarm"
--- include "place"
--- include "postpone"
--- include "tally"
--- include "finish"
local ident, through = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1] == '1'
local first = FIRST_ARGUMENT + 2
local before = recorded()
if before == 'stale' then return {'stale'} end
if before then return {'ok', before} end
local q = load_queue(ident)
if not q then return {'unknown'} end
local now = clock()

local ids = {}
for at = first, #ARGV, 2 do ids[#ids + 1] = string.sub(ARGV[at], 1, 16) end
local present = redis.call('HMGET', q.key.bodies, unpack(ids))
local gated = not through and redis.call('EXISTS', q.key.gates) == 1
local room = q.max_depth > 0 and q.max_depth - depth(q) or math.huge
local span = q.ttl > 0 and math.min(q.ttl, q.max_age) or q.max_age

-- Decide first, write after.
local letters, originals, bodies, arrivals, seen, named, refused = {}, {}, {}, {}, {}, {}, 0
for i, id in ipairs(ids) do
  local head = ARGV[first + 2 * (i - 1)]
  local _, priority, deliver_at, ttl, key_size, idempotency_size, rest = struct.unpack(ARRIVAL, head)
  local key, idempotency, digest = '', nil, nil
  if key_size + idempotency_size > 0 then
    key = string.sub(head, rest, rest + key_size - 1)
    if idempotency_size > 0 then
      idempotency = string.sub(head, rest + key_size, rest + key_size + idempotency_size - 1)
      digest = string.sub(head, rest + key_size + idempotency_size)
    end
  end
  local known = idempotency and (seen[idempotency] or redis.call('HGET', q.key.seen, idempotency))
  if known and struct.unpack('>I8', known) <= now then known = nil end
  if gated and redis.call('HEXISTS', q.key.gates, key) == 1 then
    letters[i] = 'g'
  elseif known then
    letters[i] = string.sub(known, 25) == digest and 'd' or 'k'
    originals[#originals + 1] = string.sub(known, 9, 24)
  elseif present[i] or named[id] then
    letters[i] = 'd'
    originals[#originals + 1] = id
  elseif room < 1 then
    letters[i] = 'f'
    refused = refused + 1
  else
    letters[i] = 'a'
    room = room - 1
    named[id] = true
    bodies[#bodies + 1] = id
    bodies[#bodies + 1] = ARGV[first + 2 * (i - 1) + 1]
    if idempotency then seen[idempotency] = struct.pack('>I8', now + q.window) .. id .. digest end
    local available = deliver_at > now and deliver_at or now
    local expires = available + (ttl > 0 and ttl < span and ttl or span)
    arrivals[#arrivals + 1] = {id, available, expires, priority, q.by_key and key or ''}
  end
end

local counts = {}
tally(q, counts, 'enqueued', #arrivals)
tally(q, counts, 'refused', refused)
if #arrivals > 0 then
  redis.call('HSET', q.key.bodies, unpack(bodies))
  local ready, aside, soon = {}, {}, nil
  for _, arrival in ipairs(arrivals) do
    local id, available, expires, priority, lane = unpack(arrival)
    if available > now then
      postpone(q, 0, id, 0, now, available, expires, priority, lane)
      soon = true
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
  if soon then redis.call('PUBLISH', shard_key.wake, ident) end
end
if #arrivals + refused > 0 then finish(q, 'enqueue', counts, {}, now) end
local reply = table.concat(letters) .. table.concat(originals)
record(reply)
return {'ok', reply}
