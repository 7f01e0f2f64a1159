--- include "keys"
-- Whether somebody switched off the metrics of this shard. Read once per call, by the calls that may emit.
local is_off
local function switched_off()
  if is_off == nil then is_off = redis.call('HGET', shard_key.metrics_switch, 'state') == 'off' end
  return is_off
end
