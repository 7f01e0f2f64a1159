-- limit: set how many messages of an environment may be leased at once.
-- ARGV  7 ident of the environment, 8 limit (0: none)
-- Reply {'ok'}
--- include "call"
--- include "clock"
--- include "keys"
--- include "note_limited"
local environment, limit = ARGV[FIRST_ARGUMENT], tonumber(ARGV[FIRST_ARGUMENT + 1])
local keys = environment_keys(environment)
if limit == 0 then
  redis.call('HDEL', keys.base, 'limit')
else
  redis.call('HSET', keys.base, 'limit', limit)
end
local known = redis.call('HMGET', keys.base, 'running', 'limited')
local running = tonumber(known[1] or 0)
note_limited(keys.base, known[2], limit, running, clock())
if redis.call('EXISTS', keys.active) == 0 or (limit > 0 and running >= limit) then
  redis.call('ZREM', shard_key.active, environment)
elseif redis.call('ZADD', shard_key.active, 'NX', redis.call('GET', shard_key.turn) or '0', environment) == 1 then
  redis.call('PUBLISH', shard_key.wake, environment)
end
return {'ok'}
