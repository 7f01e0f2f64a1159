--- include "keys"
--- include "mark"
-- Let the slot remember a call: when it was, its answer (a letter for each message), and the ids of the first
-- messages of all DUPLICATE and KEY_REUSED among them, and the digest of its messages ('' if it was not told; otherwise 16 bytes,
-- which older programs do not look at). A call without letters is void.
local function remember_call(slot, id, letters, originals, now, digest)
  local mark = MARK + (digest == '' and 1 or 2)
  redis.call('HSET', shard_key.calls, slot,
    struct.pack('>I1I8I2I2', mark, now, #id, #letters) .. id .. letters .. originals .. digest)
end
