-- refuse_growth: let this shard take in no messages for a while, because its disk is nearly full; or lift that.
-- ARGV  7 what to tell who pushes ('' lifts the refusal), 8 for how many ms it holds unless it is repeated
-- Reply {'ok'}
--- include "call"
--- include "clock"
--- include "keys"
--- include "allow_draining"
local text, hold_ms = ARGV[FIRST_ARGUMENT], tonumber(ARGV[FIRST_ARGUMENT + 1])
allow_draining()
if text == '' then
  redis.call('HDEL', shard_key.metrics_switch, 'disk')
else
  redis.call('HSET', shard_key.metrics_switch, 'disk', string.format('%.0f', clock() + hold_ms) .. ' ' .. text)
end
return {'ok'}
