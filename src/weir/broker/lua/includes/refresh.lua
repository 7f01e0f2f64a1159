--- include "keys"
-- Keep the rotation in step: a queue stands in its environment's rotation while it may be served, the
-- environment in the shard's while one of its queues does and it has room. Newcomers join behind those
-- already waiting for their turn, and consumers that wait for them are woken.
local function refresh(q, limit, running)
  local servable = not q.paused and (q.concurrency == 0 or q.running < q.concurrency)
    and redis.call('ZCARD', q.heads_key) > 0
  local queues = q.environment_key.active
  local woke
  if servable then
    local turn = redis.call('GET', shard_key.turn) or '0'
    if redis.call('ZADD', queues, 'NX', turn, q.ident) == 1 then woke = q.ident end
    if limit == 0 or running < limit then
      if redis.call('ZADD', shard_key.active, 'NX', turn, q.environment) == 1 then woke = q.environment end
    else
      redis.call('ZREM', shard_key.active, q.environment)
    end
  else
    redis.call('ZREM', queues, q.ident)
    if redis.call('EXISTS', queues) == 0 or (limit > 0 and running >= limit) then
      redis.call('ZREM', shard_key.active, q.environment)
    elseif redis.call('ZADD', shard_key.active, 'NX', redis.call('GET', shard_key.turn) or '0',
        q.environment) == 1 then
      woke = q.environment
    end
  end
  if woke then redis.call('PUBLISH', shard_key.wake, woke) end
end
