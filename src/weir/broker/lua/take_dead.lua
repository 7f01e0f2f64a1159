-- take_dead: the oldest unmoved dead of the shard; they stay there. Reads only.
-- ARGV  7 how many at most; after 4 MiB there are no more, so that storing a batch holds no event loop for long
-- Reply {'ok', then for each its id and the packed message}
--- include "call"
--- include "keys"
--- include "dead_record"
local reply, size = {'ok'}, 0
for _, id in ipairs(redis.call('ZRANGE', shard_key.outbox, 0, tonumber(ARGV[FIRST_ARGUMENT]) - 1)) do
  local dead = redis.call('HGET', shard_key.dead, id)
  if dead then
    reply[#reply + 1] = id
    reply[#reply + 1] = current_dead(dead)
    size = size + #dead
    if size > 4 * 1024 * 1024 then break end
  end
end
return reply
