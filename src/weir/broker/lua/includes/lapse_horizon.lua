--- include "keys"
--- include "lapse_bounds"
-- Leases lapse if they ended by the time that this answers. While nobody keeps the shard that is now. A keeper moves it on (see
-- `let_lapse`), but never past a lease that an acknowledgment of a queued operation may name. If it stands still, scripts go on
-- alone after `kept_ms`. That counts from the first script that notices, because a server that was stopped noticed nothing.
-- What the shard was told is in `LAPSES`, because a script has few locals left.
local function lapse_horizon(now)
  if not LAPSES.told then LAPSES.told = redis.call('HMGET', shard_key.lapses, 'until_ms', 'missed_ms') end
  local until_ms = tonumber(LAPSES.told[1] or now)
  if until_ms >= now then return now end
  if now - until_ms <= LAPSES.late_ms then return until_ms end
  if not LAPSES.told[2] then
    LAPSES.told[2] = string.format('%.0f', now)
    redis.call('HSET', shard_key.lapses, 'missed_ms', LAPSES.told[2])
  end
  return now - tonumber(LAPSES.told[2]) < LAPSES.kept_ms and until_ms or now
end
