-- close_gate: from now on enqueue of this partition answers gated, until every closer opened it.
-- ARGV  7 ident, 8 partition ('' for messages without a key), 9 operation
-- Reply {'ok'}
--- include "call"
--- include "keys"
local keys, partition, operation =
  queue_keys(ARGV[FIRST_ARGUMENT]), ARGV[FIRST_ARGUMENT + 1], ARGV[FIRST_ARGUMENT + 2]
local holder = struct.pack('>I2', #partition) .. partition .. operation
if redis.call('HSETNX', keys.gate_ops, holder, '1') == 1 then
  redis.call('HINCRBY', keys.gates, partition, 1)
end
return {'ok'}
