--- include "layout"
--- include "alarm"
-- Let a message wait until it becomes available.
local function postpone(q, sequence, id, attempts, enqueued, available, expires, priority, order_key)
  local member = struct.pack(MEMBER, sequence, id, attempts, enqueued, available, expires, priority) .. order_key
  redis.call('ZADD', q.key.delayed, available, member)
  redis.call('ZADD', q.key.expiry, expires, member)
  alarm(q, math.min(available, expires))
end
