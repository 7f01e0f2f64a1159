-- open_gates: these operations no longer hold their gates.
-- ARGV  7 ident, 8… for each gate its partition ('' for messages without a key) and the operation
-- Reply {'ok', then partition and operation of everyone who still holds one of these gates, unless they
--       are many}
--- include "call"
--- include "keys"
local keys, reply, asked = queue_keys(ARGV[FIRST_ARGUMENT]), {'ok'}, {}
for at = FIRST_ARGUMENT + 1, #ARGV, 2 do
  redis.call('HDEL', gate_key(keys, ARGV[at]), ARGV[at + 1])
end
for at = FIRST_ARGUMENT + 1, #ARGV, 2 do
  local partition = ARGV[at]
  if not asked[partition] then
    asked[partition] = true
    local gate = gate_key(keys, partition)
    local count = redis.call('HLEN', gate)
    if count == 0 then redis.call('HDEL', keys.gates, partition) end
    for _, operation in ipairs(count <= 100 and redis.call('HKEYS', gate) or {}) do
      reply[#reply + 1] = partition
      reply[#reply + 1] = operation
    end
  end
end
return reply
