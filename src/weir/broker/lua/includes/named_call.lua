--- include "keys"
--- include "remembered_call"
-- What the slot remembers of this very call: a letter for each message, and the ids of the first messages of all
-- d and k. Nil if it is new.
local function named_call(slot, id)
  local known = redis.call('HGET', shard_key.calls, slot)
  if not known then return nil end
  local _, remembered, letters, originals = remembered_call(known)
  if remembered ~= id then return nil end
  return letters, originals
end
