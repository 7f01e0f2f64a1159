-- The totals of the queue's environment: limit, depth, running, when its limit was reached, when nobody asked. Read once
-- until the queue is saved, because nothing changes them before that.
local function environment_totals(q)
  if not q.totals then
    q.totals = redis.call('HMGET', q.environment_key.base, 'limit', 'depth', 'running', 'limited', 'asked')
  end
  return q.totals
end
