--- include "keys"
--- include "death_reasons"
--- include "dead_record"
--- include "drop_bodies"
-- How many messages died in this call, and their bytes. A call that buried this much leaves the rest for the next: 250 bodies
-- of 1 MiB held the server for 0.8 s.
local deaths = {count = 0, bytes = 0, most_bytes = 8 * 1024 * 1024}
-- Write a message to the unmoved dead of the shard, then remove what is left of it in the queue.
-- `reason` is one of `DIED`; `body` is read if the caller does not give it.
local function bury(q, now, id, attempts, enqueued, priority, reason, error, body)
  body = body or redis.call('HGET', q.key.bodies, id) or string.rep('\0', 6)
  local dead = pack_dead({
    ident_size = #q.ident, attempts = attempts, max_attempts = q.max_attempts, reason = reason,
    enqueued = enqueued, died = now, priority = priority, error_size = #error,
  })
  redis.call('HSET', shard_key.dead, id, dead .. q.ident .. error .. body)
  redis.call('ZADD', shard_key.outbox, now, id)
  drop_bodies(q, {id})
  deaths.count, deaths.bytes = deaths.count + 1, deaths.bytes + #body
end
