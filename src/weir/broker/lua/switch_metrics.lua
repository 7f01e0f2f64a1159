-- switch_metrics: switch the events of this shard off or on. If they already are, nothing changes.
-- ARGV  7 'off' or 'on', 8 who asks, 9 why
-- Reply {'ok', '1' if it changed}
--- include "call"
--- include "clock"
--- include "keys"
--- include "allow_draining"
local state, by, reason = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1], ARGV[FIRST_ARGUMENT + 2]
local KEPT_SPANS = 100
local key = shard_key.metrics_switch
local before = redis.call('HMGET', key, 'state', 'since_ms', 'by', 'reason', 'spans')
if (before[1] or 'on') == state then return {'ok', '0'} end
allow_draining()
-- Each change is later than the one before it, even if the clock went back: a span is known by its start.
local now = math.max(clock(), tonumber(before[2] or 0) + 1)
if state == 'on' then
  local spans = before[5] and cjson.decode(before[5]) or {}
  spans[#spans + 1] =
    {from_ms = tonumber(before[2]), to_ms = now, by = before[3], reason = before[4], ended_by = by}
  if #spans > KEPT_SPANS then table.remove(spans, 1) end
  redis.call('HSET', key, 'spans', cjson.encode(spans))
  redis.call('HDEL', key, 'restored')
end
redis.call('HSET', key, 'state', state, 'since_ms', now, 'by', by, 'reason', reason)
return {'ok', '1'}
