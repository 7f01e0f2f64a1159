--- include "layout"
--- include "alarm"
-- Let a message wait until it becomes available. Answers its place: the member without its id.
local function postpone(q, sequence, id, attempts, enqueued, available, expires, priority, order_key)
  local number = struct.pack('>I8', sequence)
  local rest = struct.pack('>I4I8I8I8I1', attempts, enqueued, available, expires, priority) .. order_key
  local member = number .. id .. rest
  redis.call('ZADD', q.key.delayed, available, member)
  redis.call('ZADD', q.key.expiry, expires, member)
  if attempts > 0 then q.retrying = q.retrying + 1 end
  alarm(q, math.min(available, expires))
  return number .. rest
end
