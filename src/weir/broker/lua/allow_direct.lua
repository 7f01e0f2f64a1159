-- allow_direct: set until when processes may push without asking PostgreSQL. It only moves forward, or ends.
-- ARGV  7 until when in ms by the server's clock, 0: not any more
-- Reply {'ok'}
--- include "call"
--- include "keys"
local until_ms = ARGV[FIRST_ARGUMENT]
if until_ms == '0' or tonumber(redis.call('GET', shard_key.direct) or 0) < tonumber(until_ms) then
  redis.call('SET', shard_key.direct, until_ms)
end
return {'ok'}
