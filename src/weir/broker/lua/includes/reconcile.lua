--- include "layout"
--- include "drop_bodies"
-- Drop orphans: bodies that nothing points at, left by an enqueue that failed half-way and was never
-- acknowledged. If the sizes agree there are none. Only small queues are searched.
local function reconcile(q)
  local indexed = redis.call('ZCARD', q.key.ready) + redis.call('ZCARD', q.key.delayed) + q.running
  local bodies = redis.call('HLEN', q.key.bodies)
  if bodies <= indexed or bodies > 2000 then return 0 end
  local known = {}
  for _, key in ipairs({q.key.ready, q.key.delayed}) do
    for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
      known[string.sub(member, 9, 24)] = true
    end
  end
  for _, id in ipairs(redis.call('HKEYS', q.key.leases)) do known[id] = true end
  local dropped = 0
  for _, id in ipairs(redis.call('HKEYS', q.key.bodies)) do
    if not known[id] then
      drop_bodies(q, {id})
      dropped = dropped + 1
    end
  end
  return dropped
end
