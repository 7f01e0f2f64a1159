--- include "keys"
--- include "mark"
-- Let the slot remember a call: when it was, its answer (a letter for each message), and the ids of the first
-- messages of all DUPLICATE and KEY_REUSED among them. A call without letters is void.
local function remember_call(slot, id, letters, originals, now)
  redis.call('HSET', shard_key.calls, slot,
    struct.pack('>I1I8I2I2', MARK + 1, now, #id, #letters) .. id .. letters .. originals)
end
