--- include "keys"
local RESTORE_STEP = 500
-- Walk once over all queues that time may change, a step per call, and add them to `touched` if they are missing.
-- Every queue with messages is among them. Earlier versions took quiet queues out of `touched` while metrics
-- were off, and then nobody emitted their heartbeats. True while some queues are left.
local function restore_touched()
  local cursor = redis.call('HGET', shard_key.metrics_switch, 'restored') or '0'
  if cursor == 'all' then return false end
  local found = redis.call('ZSCAN', shard_key.timers, cursor, 'COUNT', RESTORE_STEP)
  for i = 1, #found[2], 2 do redis.call('ZADD', shard_key.touched, 'NX', 0, found[2][i]) end
  redis.call('HSET', shard_key.metrics_switch, 'restored', found[1] == '0' and 'all' or found[1])
  return found[1] ~= '0'
end
