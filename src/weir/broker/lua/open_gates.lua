-- open_gates: take operations off their gates; messages that they did not bring will not come.
-- ARGV  7 ident, 8… for each gate its partition ('' for messages without a key) and the operation
-- Reply {'ok'}
--- include "call"
--- include "clock"
--- include "keys"
--- include "allow_draining"
--- include "gate_state"
--- include "gate_time"
--- include "unreserve"
local ident = ARGV[FIRST_ARGUMENT]
local keys, missing = queue_keys(ident), 0
allow_draining()
for at = FIRST_ARGUMENT + 1, #ARGV, 2 do
  local partition, operation = ARGV[at], ARGV[at + 1]
  local gate = gate_key(keys, partition)
  local put, total = gate_state(gate, operation)
  if put then
    missing = missing + math.max(0, total - put)
    redis.call('HDEL', gate, operation)
    redis.call('ZREM', shard_key.gate_times, gate_time(ident, partition, operation))
    if redis.call('EXISTS', gate) == 0 then redis.call('HDEL', keys.gates, partition) end
  end
end
unreserve(ident, missing, clock())
return {'ok'}
