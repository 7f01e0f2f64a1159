-- close_gates: from now on enqueue of these partitions answers gated, until every closer opened it.
-- ARGV  7 ident, 8… for each gate its partition ('' for messages without a key) and the operation
-- Reply {'ok', then partition and operation of those that are void and closed nothing} | {'unknown'}
--- include "call"
--- include "keys"
local keys, reply = queue_keys(ARGV[FIRST_ARGUMENT]), {'ok'}
if redis.call('EXISTS', keys.base) == 0 then return {'unknown'} end
for at = FIRST_ARGUMENT + 1, #ARGV, 2 do
  if redis.call('ZSCORE', shard_key.voided, ARGV[at + 1]) then
    reply[#reply + 1] = ARGV[at]
    reply[#reply + 1] = ARGV[at + 1]
  else
    redis.call('HSETNX', gate_key(keys, ARGV[at]), ARGV[at + 1], '0')
    redis.call('HSET', keys.gates, ARGV[at], '1')
  end
end
return reply
