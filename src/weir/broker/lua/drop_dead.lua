-- drop_dead: forget dead messages that were moved elsewhere.
-- ARGV  7 ids, 16 bytes each
-- Reply {'ok'}
--- include "call"
--- include "keys"
local blob, ids = ARGV[FIRST_ARGUMENT], {}
for at = 1, #blob, 16 do ids[#ids + 1] = string.sub(blob, at, at + 15) end
if #ids > 0 then
  redis.call('ZREM', shard_key.outbox, unpack(ids))
  redis.call('HDEL', shard_key.dead, unpack(ids))
end
return {'ok'}
