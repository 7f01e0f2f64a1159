--- include "call"
--- include "layout"
--- include "lapse_horizon"
-- The leases that a call names and may settle, in its order: false where a lease lapsed, was settled
-- before or is someone else's. `stride` is the size of one item in `items`; id and token come first.
-- A lease named twice is settled once, unless `again`. Also returns the ids and the tokens.
local function held(q, now, items, stride, again)
  if #items > MAX_BATCH * stride then error('TOOMANY leases in one call') end
  local sub, ids, tokens, named = string.sub, {}, {}, {}
  for i = 1, #items / stride do
    ids[i] = sub(items, (i - 1) * stride + 1, (i - 1) * stride + 16)
    tokens[i] = sub(items, (i - 1) * stride + 17, (i - 1) * stride + 32)
  end
  local leases = redis.call('HMGET', q.key.leases, unpack(ids))
  for i, lease in ipairs(leases) do
    if lease then
      local ends = struct.unpack('>I6', lease, 3)
      local lapsed = ends <= now and ends <= lapse_horizon(now)
      if lapsed or string.find(lease, tokens[i], 9, true) ~= 9 or (named[ids[i]] and not again) then
        leases[i] = false
      else
        named[ids[i]] = true
      end
    end
  end
  return leases, ids, tokens
end
