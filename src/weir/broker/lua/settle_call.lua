-- settle_call: what became of the messages of a named call; a call that never arrived becomes void.
-- ARGV  7 slot, 8 id of the call, 9 the digest of its messages ('' if it is not told)
-- Reply {'ok', a letter for each message as enqueue answered, empty if it never arrived, the 16-byte ids of the
--       first messages of all DUPLICATE and KEY_REUSED, in order} | {'late'} | {'other'} (see `named_call`)
--- include "call"
--- include "clock"
--- include "named_call"
--- include "remember_call"
local slot, id, digest = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1], ARGV[FIRST_ARGUMENT + 2]
local letters, originals, refusal = named_call(slot, id, digest)
if refusal then return {refusal} end
if not letters then
  remember_call(slot, id, '', '', clock(), digest)
  return {'ok', '', ''}
end
return {'ok', letters, originals}
