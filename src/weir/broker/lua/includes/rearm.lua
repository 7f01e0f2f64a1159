--- include "keys"
--- include "layout"
-- Set the queue's timer to exactly when time alone next changes it; the caller saves the queue.
local function rearm(q)
  local at
  local function consider(time)
    if time and (not at or tonumber(time) < at) then at = tonumber(time) end
  end
  for _, key in ipairs({q.key.delayed, q.key.deadlines, q.key.expiry, q.key.seen_until, q.key.revoked}) do
    consider(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  end
  local from = 0
  while from <= 9 * BAND do
    local front = redis.call('ZRANGEBYSCORE', q.key.ready, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not front[1] then break end
    local _, _, _, _, _, expires = struct.unpack(MEMBER, front[1])
    consider(expires)
    from = (math.floor(tonumber(front[2]) / BAND) + 1) * BAND
  end
  q.alarm, q.alarm_set = nil, at or 0
  if at then
    redis.call('ZADD', shard_key.timers, at, q.ident)
  else
    redis.call('ZREM', shard_key.timers, q.ident)
  end
end
