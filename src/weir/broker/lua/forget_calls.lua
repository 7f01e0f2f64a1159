-- forget_calls: forget call slots whose last call was long ago.
-- ARGV  7 how long ago at least in ms, 8… the slots
-- Reply {'ok', how many were forgotten}
--- include "call"
--- include "clock"
--- include "keys"
--- include "allow_draining"
--- include "remembered_call"
local before, forgotten = clock() - tonumber(ARGV[FIRST_ARGUMENT]), 0
allow_draining()
for at = FIRST_ARGUMENT + 1, #ARGV do
  local known = redis.call('HGET', shard_key.calls, ARGV[at])
  local used = known and remembered_call(known)
  if used and used <= before then forgotten = forgotten + redis.call('HDEL', shard_key.calls, ARGV[at]) end
end
return {'ok', forgotten}
