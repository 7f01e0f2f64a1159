-- forget: remove an empty queue and its idempotency keys. Its dead letters stay. The odometers of a queue that
-- was used stay, because lifetime totals must never become smaller. Its gates stay, because the operations that
-- closed them are still to come.
-- ARGV  7 ident
-- Reply {'ok'} | {'busy', how many messages it holds}
--- include "call"
--- include "keys"
--- include "state_marks"
--- include "retire"
--- include "load_queue"
--- include "depth"
local ident = ARGV[FIRST_ARGUMENT]
local q = load_queue(ident)
if not q then return {'ok'} end
local holds = depth(q) + q.running
if holds > 0 then return {'busy', holds} end
redis.call('ZREM', q.environment_key.queues, ident)
redis.call('ZREM', q.environment_key.active, ident)
redis.call('ZREM', shard_key.timers, ident)
redis.call('ZREM', shard_key.touched, ident)
if redis.call('EXISTS', q.environment_key.active) == 0 then
  redis.call('ZREM', shard_key.active, q.environment)
end
if q.enqueued + q.refused + q.reserved > 0 then
  for _, mark in ipairs(STATE_MARKS) do q[mark] = 0 end
  retire(ident, q)
end
redis.call('DEL', q.key.base)
for part in pairs(queue_suffixes) do
  if part ~= 'gates' then redis.call('UNLINK', q.key[part]) end
end
return {'ok'}
