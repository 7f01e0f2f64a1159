-- settle_call: what became of the messages of a named call; a call that never arrived becomes void.
-- ARGV  7 slot, 8 id of the call
-- Reply {'ok', a letter for each message as enqueue answered, empty if it never arrived, the 16-byte ids of the
--       first messages of all DUPLICATE and KEY_REUSED, in order}
--- include "call"
--- include "clock"
--- include "named_call"
--- include "remember_call"
local slot, id = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1]
local letters, originals, late = named_call(slot, id)
if not letters then
  if not late then remember_call(slot, id, '', '', clock()) end
  return {'ok', '', ''}
end
return {'ok', letters, originals}
