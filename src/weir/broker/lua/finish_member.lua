-- finish_member: note that a member of a group of tasks is done. May run twice.
-- ARGV  7 how long the members are remembered in ms, 8 ident of the environment, 9 group, 10 number of the member,
--       11 how many there are
-- Reply {'ok', '1' if all are done, else '0'}
--- include "call"
--- include "keys"
local keep_ms, environment, group = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1], ARGV[FIRST_ARGUMENT + 2]
local key = members_key(environment, group)
redis.call('SADD', key, ARGV[FIRST_ARGUMENT + 3])
redis.call('PEXPIRE', key, keep_ms)
return {'ok', redis.call('SCARD', key) >= tonumber(ARGV[FIRST_ARGUMENT + 4]) and '1' or '0'}
