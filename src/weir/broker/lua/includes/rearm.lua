--- include "keys"
--- include "layout"
--- include "first_unlisted"
--- include "lapse_horizon"
-- Set the queue's timer to exactly when time alone next changes it; the caller saves the queue. If there is more to do now,
-- the queue stands behind those that have waited for longer.
local function rearm(q, now)
  local at
  local function consider(time)
    if time and (not at or tonumber(time) < at) then at = tonumber(time) end
  end
  local ended = tonumber(redis.call('ZRANGE', q.key.deadlines, 0, 0, 'WITHSCORES')[2])
  if ended and ended <= now and ended > lapse_horizon(now) then ended = now + LAPSES.look_ms end
  consider(ended)
  for _, key in ipairs({q.key.delayed, q.key.expiry, q.key.seen_until, q.key.revoked}) do
    consider(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  end
  local member, score = first_unlisted(q, 0)
  while member do
    local _, _, _, _, _, expires = struct.unpack(MEMBER, member)
    consider(expires)
    member, score = first_unlisted(q, (math.floor(tonumber(score) / BAND) + 1) * BAND)
  end
  at = at and math.max(at, now)
  q.alarm, q.alarm_set = nil, at or 0
  if at then
    redis.call('ZADD', shard_key.timers, at, q.ident)
  else
    redis.call('ZREM', shard_key.timers, q.ident)
  end
end
