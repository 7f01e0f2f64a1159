--- include "keys"
--- include "remembered_call"
-- What the slot remembers of this very call: a letter for each message, and the ids of the first messages of all
-- DUPLICATE and KEY_REUSED. Nil if the call is new. Nil, nil and true if it is late: its slot has made a later call since.
-- Only ids that are numbers show that; older programs used other ids.
local function named_call(slot, id)
  local known = redis.call('HGET', shard_key.calls, slot)
  if not known then return nil end
  local _, remembered, letters, originals = remembered_call(known)
  if remembered == id then return letters, originals end
  local number, last = tonumber(id), tonumber(remembered)
  return nil, nil, number and last and number < last
end
