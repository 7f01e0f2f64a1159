-- were_cancelled: which messages are kept as cancelled. Reads only.
-- ARGV  7 ident of the environment, 8 ids, 16 bytes each
-- Reply {'ok', one letter per id: y or n}
--- include "call"
--- include "keys"
local ident, blob, letters = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1], {}
for at = 1, #blob, 16 do
  -- The first byte says what is kept; results may be long.
  local kind = redis.call('GETRANGE', kept_key(ident, string.sub(blob, at, at + 15)), 0, 0)
  letters[#letters + 1] = kind == 'c' and 'y' or 'n'
end
return {'ok', table.concat(letters)}
