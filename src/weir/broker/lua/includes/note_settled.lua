--- include "keys"
--- include "layout"
--- include "settled"
-- Remember how leases were settled (see SETTLED), for a while, so that who lost the answer gets it again. `tokens` and `ids` name
-- the leases. Messages that one dequeue handed out have one token, and so one field. The older half is dropped when there are many.
local function note_settled(now, how, tokens, ids)
  local count, from = #ids, 1
  if count == 0 then return end
  local total = redis.call('HINCRBY', shard_key.settled, 'n', count)
  if total > MOST_SETTLED and total > count then
    redis.call('UNLINK', shard_key.settled_before)
    redis.call('RENAME', shard_key.settled, shard_key.settled_before)
    redis.call('HSET', shard_key.settled, 'n', count)
    total = count
  end
  -- Now and then is enough, because each entry says when it was made.
  if total % 64 < count then redis.call('PEXPIRE', shard_key.settled, 10 * SETTLED_MS) end
  for i = 2, count + 1 do
    local token = tokens[from]
    if tokens[i] ~= token or i > count then
      local entry = struct.pack(SETTLED, how, now, i - from) .. table.concat(ids, '', from, i - 1)
      if redis.call('HSETNX', shard_key.settled, token, entry) == 0 then
        redis.call('HSET', shard_key.settled, token, redis.call('HGET', shard_key.settled, token) .. entry)
      end
      from = i
    end
  end
end
