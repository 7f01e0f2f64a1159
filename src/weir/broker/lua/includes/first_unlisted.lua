--- include "layout"
-- So many listed messages are passed over in one band.
local MOST_LISTED = 100
-- The first message of `ready`, from the score `from` on, that `expiry` does not list, and its score. In its band it expires
-- before all other messages that are not listed. A listed message stands before it only if it came back, became available
-- late, or the clock went back.
local function first_unlisted(q, from)
  while from <= 9 * BAND do
    local found = redis.call('ZRANGEBYSCORE', q.key.ready, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not found[1] then return nil end
    if not redis.call('ZSCORE', q.key.expiry, found[1]) then return found[1], found[2] end
    local band_end = (math.floor(tonumber(found[2]) / BAND) + 1) * BAND
    found = redis.call('ZRANGEBYSCORE', q.key.ready, from, '(' .. band_end, 'WITHSCORES', 'LIMIT', 1, MOST_LISTED)
    for i = 1, #found, 2 do
      if not redis.call('ZSCORE', q.key.expiry, found[i]) then return found[i], found[i + 1] end
    end
    from = band_end
  end
end
