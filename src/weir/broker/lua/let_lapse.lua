-- let_lapse: leases that ended by then may lapse. The time only moves forward, except where it lies ahead of the server's clock.
-- ARGV  7 the time in ms
-- Reply {'ok'}
--- include "call"
--- include "clock"
--- include "keys"
local until_ms = tonumber(ARGV[FIRST_ARGUMENT])
local before = tonumber(redis.call('HGET', shard_key.lapses, 'until_ms') or 0)
if until_ms > before or before > clock() then
  redis.call('HSET', shard_key.lapses, 'until_ms', ARGV[FIRST_ARGUMENT])
  redis.call('HDEL', shard_key.lapses, 'missed_ms')
end
return {'ok'}
