-- dequeue: hand out messages under leases, fairly, after letting time act on queues that are due.
-- ARGV  7 'queue', 'environment' or 'shard', 8 ident ('' for a shard), 9 limit, 10 lease in ms (0: the
--       queue's own), 11 token (16 bytes), 12 consumer
-- Reply {'ok', ms until time alone changes something (-1: nothing will), the time now, how many
--       messages died because time acted on them, then for each queue that gave something its ident, how
--       many, the end of the leases and the packed messages}
--       | {'unknown'} | {'stale'}
--- include "call"
--- include "clock"
--- include "keys"
--- include "turns"
--- include "recorded"
--- include "record"
--- include "allow_draining"
--- include "load_queue"
--- include "advance"
--- include "tend"
--- include "bury"
--- include "serve"
--- include "serve_environment"
--- include "rotate"
--- include "hand_again"
local kind, ident, limit = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1], tonumber(ARGV[FIRST_ARGUMENT + 2])
local lease_ms, token, consumer =
  tonumber(ARGV[FIRST_ARGUMENT + 3]), ARGV[FIRST_ARGUMENT + 4], ARGV[FIRST_ARGUMENT + 5]
limit, lease_ms = math.min(limit, MAX_BATCH), math.min(lease_ms, MAX_LEASE)
if #token ~= 16 or #consumer > MAX_NAME then error('TOOLONG token or consumer') end
local before = recorded()
if before == 'stale' then return {'stale'} end
if before then return hand_again(before, clock()) end
local now = clock()
local queue
if kind == 'queue' then
  queue = load_queue(ident)
  if not queue then return {'unknown'} end
end
allow_draining()
if queue then
  local timer = redis.call('ZSCORE', shard_key.timers, ident)
  if timer and tonumber(timer) <= now then tend(queue, now, 200) end
else
  for _, due in ipairs(redis.call('ZRANGEBYSCORE', shard_key.timers, '-inf', now, 'LIMIT', 0, 8)) do
    local q = load_queue(due)
    if q then tend(q, now, 100) else redis.call('ZREM', shard_key.timers, due) end
  end
end
local reply, handed = {'ok', -1, now, 0}, {count = 0, bytes = 0, expired = 0, full = false}
local function serve_one(q, share)
  return serve(q, now, share, lease_ms, token, consumer, reply, handed)
end
local visits = {left = MAX_VISITS}
if queue then
  advance(queue, now)
  queue.asked_at, queue.saved = now, false
  serve_one(queue, limit)
  if not queue.saved then save_queue(queue, now) end
  -- The odometer alone would not show a consumer that still waits for the first message.
  if not queue.popped then redis.call('HSET', queue.key.base, 'popped', '1') end
elseif kind == 'environment' then
  serve_environment(ident, now, limit, visits, handed, serve_one)
else
  local got = 0
  while got < limit and visits.left > 0 and not handed.full do
    local environment = redis.call('ZRANGE', shard_key.active, 0, 0)[1]
    if not environment then break end
    local share = math.ceil((limit - got) / math.min(redis.call('ZCARD', shard_key.active), MAX_SHARE))
    got = got + serve_environment(environment, now, share, visits, handed, serve_one)
    rotate(shard_key.active, environment)
    visits.left = visits.left - 1
    if redis.call('EXISTS', environment_keys(environment).active) == 0 then
      redis.call('ZREM', shard_key.active, environment)
    end
  end
end
if handed.count == 0 then
  local timer
  if queue then
    timer = redis.call('ZSCORE', shard_key.timers, ident)
  else
    timer = redis.call('ZRANGE', shard_key.timers, 0, 0, 'WITHSCORES')[2]
  end
  if timer then reply[2] = math.max(0, tonumber(timer) - now) end
else
  local summary = {}
  local at = 5
  while reply[at] do
    local ids = {}
    for i = 1, reply[at + 1] do ids[i] = string.sub(reply[at + 2 + i], 9, 24) end
    summary[#summary + 1] = struct.pack('>I2I2', #reply[at], #ids) .. reply[at] .. table.concat(ids)
    at = at + 3 + #ids
  end
  record(token .. table.concat(summary))
end
reply[4] = deaths.count
return reply
