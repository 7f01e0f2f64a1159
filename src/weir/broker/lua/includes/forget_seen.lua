-- Forget idempotency keys whose window has passed. At most `bound`.
local function forget_seen(q, now, bound)
  local old = redis.call('ZRANGEBYSCORE', q.key.seen_until, '-inf', now, 'LIMIT', 0, bound)
  if #old == 0 then return 0 end
  redis.call('ZREM', q.key.seen_until, unpack(old))
  redis.call('HDEL', q.key.seen, unpack(old))
  return #old
end
