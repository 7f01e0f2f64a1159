--- include "keys"
--- include "layout"
--- include "depth"
--- include "refresh"
-- Write a queue back: state, environment totals, timer and rotation. Remembers the environment's
-- limit, depth and running for the event.
local function save_queue(q)
  redis.call('HSET', q.key.base, 's', struct.pack(STATE, q.enqueued, q.dequeued, q.acked, q.nacked,
    q.dead, q.expired, q.lapsed, q.refused, q.sequence, q.top_available, q.top_expires))
  local base, now_deep = q.environment_key.base, depth(q)
  if now_deep ~= q.depth_before then redis.call('HINCRBY', base, 'depth', now_deep - q.depth_before) end
  if q.running ~= q.running_before then
    redis.call('HINCRBY', base, 'running', q.running - q.running_before)
  end
  q.depth_before, q.running_before = now_deep, q.running
  local totals = redis.call('HMGET', base, 'limit', 'depth', 'running')
  q.environment_limit, q.environment_depth, q.environment_running =
    tonumber(totals[1] or 0), tonumber(totals[2] or 0), tonumber(totals[3] or 0)
  if q.alarm then
    redis.call('ZADD', shard_key.timers, 'LT', q.alarm, q.ident)
    q.alarm = nil
  end
  refresh(q, q.environment_limit, q.environment_running)
end
