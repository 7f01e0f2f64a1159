--- include "keys"
--- include "remembered_call"
-- What the slot remembers of this very call: a letter for each message, and the ids of the first messages of all
-- DUPLICATE and KEY_REUSED. Nil if the call is new. Nil, nil and a word if it is refused: 'late' if its slot has made a later
-- call since (only ids that are numbers show that; older programs used other ids), 'other' if it had other messages: another
-- digest, where both are told, or another count.
local function named_call(slot, id, digest, count)
  local known = redis.call('HGET', shard_key.calls, slot)
  if not known then return nil end
  local _, remembered, letters, originals, content = remembered_call(known)
  if remembered == id then
    local other = digest ~= '' and content ~= '' and digest ~= content
    if other or (count and letters ~= '' and #letters ~= count) then return nil, nil, 'other' end
    return letters, originals
  end
  local number, last = tonumber(id), tonumber(remembered)
  return nil, nil, number and last and number < last and 'late' or nil
end
