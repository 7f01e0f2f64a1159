-- find_message: the queue of an environment where a message waits or is leased. Reads only.
-- ARGV  7 ident of the environment, 8 id, 16 bytes, 9 continue after this queue's ident ('' to begin), 10 how many queues
--       to look at
-- Reply {'ok', ident of the queue ('' if it is in none of these), where to go on ('' at the end)}
--- include "call"
--- include "keys"
local environment, id = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1]
local after, limit = ARGV[FIRST_ARGUMENT + 2], tonumber(ARGV[FIRST_ARGUMENT + 3])
local from = after == '' and '-' or '(' .. after
local idents = redis.call('ZRANGEBYLEX', environment_keys(environment).queues, from, '+', 'LIMIT', 0, limit)
for _, ident in ipairs(idents) do
  if redis.call('HEXISTS', queue_keys(ident).bodies, id) == 1 then return {'ok', ident, ''} end
end
return {'ok', '', #idents == limit and idents[limit] or ''}
