--- include "layout"
-- When the oldest waiting message became available, or `now` if there is none. Scores are bands of priority plus time, so
-- this looks at the first message of each band that is in use. Nearly always only one band is in use.
local function oldest(q, now)
  local call, ready = redis.call, q.key.ready
  local found = call('ZRANGE', q.key.delayed, 0, 0, 'WITHSCORES')
  local earliest = found[2] and math.min(now, tonumber(found[2])) or now
  local first = call('ZRANGE', ready, 0, 0, 'WITHSCORES')[2]
  if not first then return earliest end
  local lowest = math.floor(tonumber(call('ZRANGE', ready, -1, -1, 'WITHSCORES')[2]) / BAND)
  while true do
    local score = tonumber(first)
    local band = math.floor(score / BAND)
    earliest = math.min(earliest, score % BAND)
    if band >= lowest then return earliest end
    first = call('ZRANGEBYSCORE', ready, (band + 1) * BAND, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  end
end
