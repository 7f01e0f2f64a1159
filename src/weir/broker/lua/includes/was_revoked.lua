-- Whether a lease (id and token) was revoked, because its message was cancelled, and would not have lapsed since.
local function was_revoked(keys, lease, now)
  local ended = redis.call('ZSCORE', keys.revoked, lease)
  return ended and tonumber(ended) > now
end
