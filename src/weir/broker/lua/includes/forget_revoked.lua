-- Forget revoked leases that would have lapsed by now. At most `bound`.
local function forget_revoked(q, now, bound)
  local old = redis.call('ZRANGEBYSCORE', q.key.revoked, '-inf', now, 'LIMIT', 0, bound)
  if #old == 0 then return 0 end
  redis.call('ZREM', q.key.revoked, unpack(old))
  return #old
end
