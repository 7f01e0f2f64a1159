--- include "keys"
-- Give a queue or an environment its next turn, if it still stands in the rotation.
local function rotate(rotation, ident)
  redis.call('ZADD', rotation, 'XX', redis.call('INCR', shard_key.turn), ident)
end
