--- include "layout"
--- include "place"
-- Place messages whose time has come. At most `bound`.
local function promote(q, now, bound)
  local members = redis.call('ZRANGEBYSCORE', q.key.delayed, '-inf', now, 'LIMIT', 0, bound)
  if #members == 0 then return 0 end
  redis.call('ZREM', q.key.delayed, unpack(members))
  redis.call('ZREM', q.key.expiry, unpack(members))
  for _, member in ipairs(members) do
    local sequence, id, attempts, enqueued, available, expires, priority, rest = struct.unpack(MEMBER, member)
    place(q, id, attempts, enqueued, available, expires, priority, string.sub(member, rest), attempts > 0,
      sequence)
  end
  return #members
end
