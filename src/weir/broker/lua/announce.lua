-- announce: tell which layouts this program writes, unless a newer one wrote here.
-- ARGV  7… for each layout its name and version
-- Reply {'ok'} | {'newer', name of a layout, its version} and nothing was announced
--- include "call"
--- include "keys"
local mine, at = {}, FIRST_ARGUMENT
while ARGV[at] do
  mine[ARGV[at]], at = tonumber(ARGV[at + 1]), at + 2
end
local announced = redis.call('HGETALL', shard_key.layouts)
for i = 1, #announced, 2 do
  if tonumber(announced[i + 1]) > (mine[announced[i]] or -1) then
    return {'newer', announced[i], announced[i + 1]}
  end
end
for name, version in pairs(mine) do redis.call('HSET', shard_key.layouts, name, version) end
return {'ok'}
