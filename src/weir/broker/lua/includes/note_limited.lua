--- include "note_span"
-- Note in an environment when its limit is reached, and when it no longer is. `log` holds the spans so far (see `spans`).
local function note_limited(base, log, limit, running, now)
  local reached, since = limit > 0 and running >= limit, log and struct.unpack('>I8', log) or 0
  if reached == (since > 0) then return end
  local spent = reached and now or since
  redis.call('HSET', base, 'limited', note_span(log, spent, now, reached and now or 0))
end
