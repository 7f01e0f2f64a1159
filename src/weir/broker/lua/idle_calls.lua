-- idle_calls: call slots whose last call was a while ago. A call that an older program noted without a time gets one: now.
-- ARGV  7 how long ago in ms, 8 where to go on ('0' to begin), 9 about how many to look at
-- Reply {'ok', where to go on ('0' at the end), then the slots}
--- include "call"
--- include "clock"
--- include "keys"
--- include "remembered_call"
--- include "remember_call"
local now = clock()
local before, cursor, count = now - tonumber(ARGV[FIRST_ARGUMENT]), ARGV[FIRST_ARGUMENT + 1], ARGV[FIRST_ARGUMENT + 2]
local page = redis.call('HSCAN', shard_key.calls, cursor, 'COUNT', count)
local reply, found = {'ok', page[1]}, page[2]
for i = 1, #found, 2 do
  local at, id, letters, originals = remembered_call(found[i + 1])
  if not at then
    remember_call(found[i], id, letters, originals, now, '')
  elseif at <= before then
    reply[#reply + 1] = found[i]
  end
end
return reply
