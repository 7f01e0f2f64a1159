--- include "keys"
-- Let the lane remember a call: a letter a message, y put in and n turned away; none for a void call.
local function remember_call(lane, id, letters)
  redis.call('HSET', shard_key.calls, lane, struct.pack('>I2', #id) .. id .. letters)
end
