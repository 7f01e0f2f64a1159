--- include "layout"
--- include "note_alarm"
-- Let a message wait until it becomes available, in its place (`stands`, see `pack_place`).
local function postpone(q, id, stands, attempts, available, expires, order_key)
  local member = string.sub(stands, 1, 8) .. id .. string.sub(stands, 9) .. order_key
  redis.call('ZADD', q.key.delayed, available, member)
  redis.call('ZADD', q.key.expiry, expires, member)
  -- It may be placed late, and then stands before messages that came meanwhile.
  q.top_expires = math.max(q.top_expires, expires)
  if attempts > 0 then q.retrying = q.retrying + 1 end
  note_alarm(q, math.min(available, expires))
end
