-- define: create a queue, or change what it promises from now on. A queue that was forgotten goes on
-- counting where it stopped.
-- ARGV  7 ident, 8 packed promises
-- Reply {'ok'} | {'ordering'} if it holds messages and its ordering would change
--- include "call"
--- include "clock"
--- include "keys"
--- include "promises_record"
--- include "state_record"
--- include "load_queue"
--- include "depth"
--- include "advance"
--- include "save_queue"
local ident, promises = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1]
local q = load_queue(ident)
if not q then
  local state = current_state(redis.call('HGET', shard_key.retired, ident) or '\0')
  redis.call('HSET', queue_keys(ident).base, 'c', promises, 'state', state)
  redis.call('HDEL', shard_key.retired, ident)
  q = load_queue(ident)
  redis.call('ZADD', q.environment_key.queues, 0, ident)
  return {'ok'}
end
local wanted = {}
unpack_promises(wanted, promises)
if wanted.ordering ~= q.ordering and depth(q) + q.running > 0 then return {'ordering'} end
local now = clock()
-- Until now the old promises held, so the clocks run by them first.
advance(q, now)
save_queue(q, now)
redis.call('HSET', q.key.base, 'c', promises)
save_queue(load_queue(ident), now)
return {'ok'}
