-- settle_call: which messages of a named call were put in; a call that never arrived becomes void.
-- ARGV  7 lane, 8 id of the call
-- Reply {'ok', one letter a message: y put in, n turned away; empty if it never arrived}
--- include "call"
--- include "named_call"
--- include "remember_call"
local lane, id = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1]
local known = named_call(lane, id)
if not known then
  remember_call(lane, id, '')
  known = ''
end
return {'ok', known}
