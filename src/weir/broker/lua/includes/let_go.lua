-- Remove leases. The caller decides what becomes of their messages.
local function let_go(q, ids)
  if #ids == 0 then return end
  redis.call('HDEL', q.key.leases, unpack(ids))
  redis.call('ZREM', q.key.deadlines, unpack(ids))
  q.running = q.running - #ids
end
