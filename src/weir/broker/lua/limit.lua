-- limit: set how many messages of an environment may be leased at once.
-- ARGV  7 ident of the environment, 8 limit (0: none)
-- Reply {'ok'}
--- include "call"
--- include "keys"
local environment, limit = ARGV[FIRST_ARGUMENT], tonumber(ARGV[FIRST_ARGUMENT + 1])
local keys = environment_keys(environment)
if limit == 0 then
  redis.call('HDEL', keys.base, 'limit')
else
  redis.call('HSET', keys.base, 'limit', limit)
end
local running = tonumber(redis.call('HGET', keys.base, 'running') or 0)
if redis.call('EXISTS', keys.active) == 0 or (limit > 0 and running >= limit) then
  redis.call('ZREM', shard_key.active, environment)
elseif redis.call('ZADD', shard_key.active, 'NX', redis.call('GET', shard_key.turn) or '0', environment) == 1 then
  redis.call('PUBLISH', shard_key.wake, environment)
end
return {'ok'}
