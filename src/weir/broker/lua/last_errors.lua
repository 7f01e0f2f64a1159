-- last_errors: the last errors of some messages that failed before and are not done yet. Reads only.
-- ARGV  7 ident, 8 how many at most
-- Reply {'ok', the errors} | {'unknown'}
--- include "call"
--- include "keys"
local keys, limit = queue_keys(ARGV[FIRST_ARGUMENT]), tonumber(ARGV[FIRST_ARGUMENT + 1])
if redis.call('EXISTS', keys.base) == 0 then return {'unknown'} end
local reply = {'ok'}
for at, value in ipairs(redis.call('HRANDFIELD', keys.errors, limit, 'WITHVALUES')) do
  if at % 2 == 0 then reply[#reply + 1] = value end
end
return reply
