-- holds: which messages wait, are leased or are unmoved dead. Reads only.
-- ARGV  7 ident, 8 ids, 16 bytes each
-- Reply {'ok', one letter per id: y or n} | {'unknown'}
--- include "call"
--- include "keys"
local keys, blob, letters = queue_keys(ARGV[FIRST_ARGUMENT]), ARGV[FIRST_ARGUMENT + 1], {}
if redis.call('EXISTS', keys.base) == 0 then return {'unknown'} end
for at = 1, #blob, 16 do
  local id = string.sub(blob, at, at + 15)
  local held = redis.call('HEXISTS', keys.bodies, id) == 1 or redis.call('HEXISTS', shard_key.dead, id) == 1
  letters[#letters + 1] = held and 'y' or 'n'
end
return {'ok', table.concat(letters)}
