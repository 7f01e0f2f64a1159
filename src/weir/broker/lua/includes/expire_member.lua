--- include "layout"
--- include "tally"
--- include "release"
--- include "bury"
-- Expire one waiting message, wherever it waits; it is a dead letter then, counted as expired.
local function expire_member(q, now, member, counts)
  local _, id, attempts, enqueued, _, _, priority, rest = struct.unpack(MEMBER, member)
  local order_key = string.sub(member, rest)
  redis.call('ZREM', q.key.expiry, member)
  local headed = attempts > 0
  if redis.call('ZREM', q.key.ready, member) == 1 then
    if q.ordered then
      headed = redis.call('ZREM', q.key.heads, member) == 1
      if not headed then
        redis.call('ZREM', q.key.lanes, struct.pack('>I2', #order_key) .. order_key .. member)
      end
    end
  elseif redis.call('ZREM', q.key.delayed, member) == 0 then
    return
  end
  local error = attempts > 0 and redis.call('HGET', q.key.errors, id) or ''
  bury(q, now, id, attempts, enqueued, priority, DIED.expired, error)
  if headed then release(q, order_key) end
  tally(q, counts, 'expired', 1)
end
