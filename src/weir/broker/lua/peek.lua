-- peek: the body of a message that waits or is leased. Reads only, and hands nothing out.
-- ARGV  7 ident, 8 id, 16 bytes
-- Reply {'ok', body, empty if there is none} | {'unknown'}
--- include "call"
--- include "keys"
local keys, id = queue_keys(ARGV[FIRST_ARGUMENT]), ARGV[FIRST_ARGUMENT + 1]
if redis.call('EXISTS', keys.base) == 0 then return {'unknown'} end
return {'ok', redis.call('HGET', keys.bodies, id) or ''}
