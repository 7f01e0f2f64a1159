--- include "layout"
-- The leases that a call names and may settle, in its order: false where a lease lapsed, was settled
-- before or is someone else's. `stride` is the size of one item in `items`; id and token come first.
-- A lease named twice is settled once, unless `again`.
local function held(q, now, items, stride, again)
  local ids = {}
  for i = 1, #items / stride do
    ids[i] = string.sub(items, (i - 1) * stride + 1, (i - 1) * stride + 16)
  end
  local leases = redis.call('HMGET', q.key.leases, unpack(ids))
  local named = {}
  for i, lease in ipairs(leases) do
    if lease then
      local deadline, token = struct.unpack(LEASE, lease)
      local given = string.sub(items, (i - 1) * stride + 17, (i - 1) * stride + 32)
      if token ~= given or deadline <= now or (named[ids[i]] and not again) then
        leases[i] = false
      else
        named[ids[i]] = true
      end
    end
  end
  return leases, ids
end
