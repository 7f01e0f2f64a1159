-- Counting more messages would hold the server for too long.
local MOST_COUNTED = 10000
-- Count one by one how many messages wait for a retry. Answers the number and 0, or 0 and 1 if too many are in `delayed`.
-- Only a queue of an older version needs this; in later versions the scripts keep the number.
local function count_retrying(q)
  if redis.call('ZCARD', q.key.delayed) > MOST_COUNTED then return 0, 1 end
  local found = 0
  for _, member in ipairs(redis.call('ZRANGE', q.key.delayed, 0, -1)) do
    if struct.unpack('>I4', member, 25) > 0 then found = found + 1 end
  end
  return found, 0
end
