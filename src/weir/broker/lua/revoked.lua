-- revoked: which leases were revoked, because their messages were cancelled. Reads only.
-- ARGV  7… for each queue its ident and the leases, each id (16 bytes) and token (16 bytes)
-- Reply {'ok', one letter per lease: y or n}
--- include "call"
--- include "clock"
--- include "keys"
--- include "was_revoked"
local now, letters = clock(), {}
for at = FIRST_ARGUMENT, #ARGV, 2 do
  local keys, items = queue_keys(ARGV[at]), ARGV[at + 1]
  local some = redis.call('EXISTS', keys.revoked) == 1
  for from = 1, #items, 32 do
    letters[#letters + 1] = some and was_revoked(keys, string.sub(items, from, from + 31), now) and 'y' or 'n'
  end
end
return {'ok', table.concat(letters)}
