--- include "keys"
-- Remove what is left of messages that ended.
local function drop_bodies(q, ids)
  redis.call('HDEL', q.key.bodies, unpack(ids))
  if redis.call('EXISTS', q.key.errors, q.key.places) > 0 then
    redis.call('HDEL', q.key.errors, unpack(ids))
    redis.call('HDEL', q.key.places, unpack(ids))
  end
end
