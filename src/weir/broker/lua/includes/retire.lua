--- include "keys"
--- include "state_record"
-- Keep the state of a forgotten queue. Without the zeros at its end it is too short for a program that knows no
-- versions, which would misread it.
local function retire(ident, state)
  redis.call('HSET', shard_key.retired, ident, (string.gsub(pack_state(state), '%z+$', '')))
end
