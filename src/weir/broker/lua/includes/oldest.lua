--- include "layout"
-- When the oldest waiting message became available, or `now` if none is. Scores are bands of priority
-- plus time, so the first of each band that is in use is looked at.
local function oldest(q, now)
  local call = redis.call
  local found = call('ZRANGE', q.key.delayed, 0, 0, 'WITHSCORES')
  local earliest = found[2] and math.min(now, tonumber(found[2])) or now
  local last = call('ZRANGE', q.key.ready, -1, -1, 'WITHSCORES')[2]
  if not last then return earliest end
  local from, lowest = 0, math.floor(tonumber(last) / BAND) * BAND
  while from <= lowest do
    found = call('ZRANGEBYSCORE', q.key.ready, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    local score = tonumber(found[2])
    earliest = math.min(earliest, score % BAND)
    from = (math.floor(score / BAND) + 1) * BAND
  end
  return earliest
end
