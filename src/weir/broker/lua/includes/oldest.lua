--- include "layout"
-- When the oldest waiting message became available, or `now` if none is. Scores are bands of priority
-- plus time, so the first of each band that is in use is looked at.
local function oldest(q, now)
  local found = redis.call('ZRANGE', q.key.delayed, 0, 0, 'WITHSCORES')
  local earliest = found[2] and math.min(now, tonumber(found[2])) or now
  local from = 0
  while from <= 9 * BAND do
    found = redis.call('ZRANGEBYSCORE', q.key.ready, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not found[2] then break end
    local score = tonumber(found[2])
    earliest = math.min(earliest, score % BAND)
    from = (math.floor(score / BAND) + 1) * BAND
  end
  return earliest
end
