--- include "keys"
--- include "dead_record"
-- Write a message to the shard's outbox of the dead, then remove what is left of it in the queue.
-- Reasons are positions in `DeathReason`.
local function bury(q, now, id, attempts, enqueued, priority, reason, error)
  local body = redis.call('HGET', q.key.bodies, id) or string.rep('\0', 6)
  redis.call('HSET', shard_key.dead, id, struct.pack(DEAD, DEAD_MARK, #q.ident, attempts, q.max_attempts,
    reason, enqueued, now, priority, #error) .. q.ident .. error .. body)
  redis.call('ZADD', shard_key.outbox, now, id)
  redis.call('HDEL', q.key.bodies, id)
  redis.call('HDEL', q.key.errors, id)
end
