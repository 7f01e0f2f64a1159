-- announce: note which layouts this program writes, unless a newer program wrote here.
-- ARGV  7… for each layout its name and version
-- Reply {'ok'} | {'newer', name of a layout, its version} and nothing was announced
--- include "call"
--- include "keys"
local mine, at = {}, FIRST_ARGUMENT
while ARGV[at] do
  mine[ARGV[at]], at = tonumber(ARGV[at + 1]), at + 2
end
local announced = redis.call('HGETALL', shard_key.layouts)
local known = {}
for i = 1, #announced, 2 do
  known[announced[i]] = tonumber(announced[i + 1])
  if known[announced[i]] > (mine[announced[i]] or -1) then
    return {'newer', announced[i], announced[i + 1]}
  end
end
-- A version that is known is not written again, so that a process can start on a server that is out of memory.
for name, version in pairs(mine) do
  if known[name] ~= version then redis.call('HSET', shard_key.layouts, name, version) end
end
return {'ok'}
