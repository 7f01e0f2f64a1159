-- stale_gates: gates of a shard that were closed a while ago and still are, the oldest first. Reads only.
-- ARGV  7 how long ago in ms, 8 how many to skip, 9 how many at most
-- Reply {'ok', then for each gate its queue's ident, the partition and the operation}
--- include "call"
--- include "clock"
--- include "keys"
local before = clock() - tonumber(ARGV[FIRST_ARGUMENT])
local skip, limit = ARGV[FIRST_ARGUMENT + 1], ARGV[FIRST_ARGUMENT + 2]
local reply = {'ok'}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', shard_key.gate_times, '-inf', before, 'LIMIT', skip, limit)) do
  local ident_size, operation_size, start = struct.unpack('>I2I2', member)
  reply[#reply + 1] = string.sub(member, start, start + ident_size - 1)
  reply[#reply + 1] = string.sub(member, start + ident_size + operation_size)
  reply[#reply + 1] = string.sub(member, start + ident_size, start + ident_size + operation_size - 1)
end
return reply
