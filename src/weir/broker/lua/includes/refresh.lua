--- include "keys"
-- Keep the rotations up to date. A queue is in the rotation of its environment while it may be served. An
-- environment is in the rotation of the shard while one of its queues may be served and its limit is not reached.
-- A newcomer joins behind all that already wait for their turn, and consumers that wait for it are woken.
local function refresh(q, limit, running)
  local servable = not q.paused and (q.concurrency == 0 or q.running < q.concurrency)
    and redis.call('EXISTS', q.heads_key) == 1
  local queues = q.environment_key.active
  local listed = redis.call('ZSCORE', queues, q.ident)
  -- Without a limit, an environment whose queue is listed is listed too.
  if servable and listed and limit == 0 then return end
  local turn, woke = redis.call('GET', shard_key.turn) or '0', nil
  if servable and not listed then
    redis.call('ZADD', queues, turn, q.ident)
    woke = q.ident
  elseif listed and not servable then
    redis.call('ZREM', queues, q.ident)
  end
  if (limit > 0 and running >= limit) or not (servable or redis.call('EXISTS', queues) == 1) then
    redis.call('ZREM', shard_key.active, q.environment)
  elseif redis.call('ZADD', shard_key.active, 'NX', turn, q.environment) == 1 then
    woke = q.environment
  end
  if woke then redis.call('PUBLISH', shard_key.wake, woke) end
end
