--- include "keys"
-- What the shard was told: whether its metrics are off, and until when its disk has no room. Read once per call.
local told
local function shard_switch()
  if not told then told = redis.call('HMGET', shard_key.metrics_switch, 'state', 'disk') end
  return told
end
