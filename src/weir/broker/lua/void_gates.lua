-- void_gates: make operations void, so that they never run. Their gates open, and cannot be closed for them again.
-- ARGV  7 how long that is remembered in ms, 8 ident, 9… for each gate its partition ('' for messages without a
--       key) and the operation
-- Reply {'ok', one letter per gate: y void, n too late: messages were put in, or the operation is finished}
--- include "call"
--- include "clock"
--- include "keys"
--- include "gate_state"
--- include "gate_time"
--- include "unreserve"
local now, ident, letters = clock(), ARGV[FIRST_ARGUMENT + 1], {}
local keys, missing = queue_keys(ident), 0
for at = FIRST_ARGUMENT + 2, #ARGV, 2 do
  local partition, operation = ARGV[at], ARGV[at + 1]
  local gate = gate_key(keys, partition)
  local put, total = gate_state(gate, operation)
  if put == 0 then
    redis.call('ZADD', shard_key.voided, now, operation)
    redis.call('HDEL', gate, operation)
    redis.call('ZREM', shard_key.gate_times, gate_time(ident, partition, operation))
    missing = missing + total
    if redis.call('EXISTS', gate) == 0 then redis.call('HDEL', keys.gates, partition) end
  end
  letters[#letters + 1] = redis.call('ZSCORE', shard_key.voided, operation) and 'y' or 'n'
end
unreserve(ident, missing, now)
-- This comes last, because a server that is out of memory refuses the ZADD above only if it is the first write.
redis.call('ZREMRANGEBYSCORE', shard_key.voided, '-inf', now - ARGV[FIRST_ARGUMENT])
return {'ok', table.concat(letters)}
