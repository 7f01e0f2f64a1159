-- forget: remove an empty queue. Its gates and idempotency keys go with it; its dead letters stay.
-- ARGV  7 ident
-- Reply {'ok'} | {'busy', how many messages it holds}
--- include "call"
--- include "keys"
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
for _, partition in ipairs(redis.call('HKEYS', q.key.gates)) do
  redis.call('UNLINK', gate_key(q.key, partition))
end
redis.call('DEL', q.key.base)
for part in pairs(queue_suffixes) do redis.call('UNLINK', q.key[part]) end
return {'ok'}
