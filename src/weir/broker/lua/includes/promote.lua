--- include "layout"
--- include "place"
-- Place messages whose time has come. At most `bound`. In an ordered queue a member with a sequence number is the
-- head of its key, which comes back.
local function promote(q, now, bound)
  local members = redis.call('ZRANGEBYSCORE', q.key.delayed, '-inf', now, 'LIMIT', 0, bound)
  if #members == 0 then return 0 end
  redis.call('ZREM', q.key.delayed, unpack(members))
  redis.call('ZREM', q.key.expiry, unpack(members))
  local places = {}
  for i, member in ipairs(members) do
    local sequence, id, attempts, enqueued, available, expires, priority, rest = struct.unpack(MEMBER, member)
    local returning = q.ordered and sequence > 0
    places[2 * i - 1] = id
    places[2 * i] = place(q, id, attempts, enqueued, available, expires, priority, string.sub(member, rest),
      returning, returning and sequence or nil)
    if attempts > 0 then q.retrying = q.retrying - 1 end
  end
  redis.call('HSET', q.key.places, unpack(places))
  if q.uncounted == 1 and redis.call('EXISTS', q.key.delayed) == 0 then q.retrying, q.uncounted = 0, 0 end
  return #members
end
