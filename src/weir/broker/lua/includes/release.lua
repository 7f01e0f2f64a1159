--- include "layout"
-- The head of a lane is gone for good: the next of its key becomes the head.
local function release(q, lane)
  if not q.ordered then return end
  local start = struct.pack('>I2', #lane) .. lane
  local behind = redis.call('ZRANGEBYLEX', q.key.lanes, '[' .. start, '(' .. start .. '\255', 'LIMIT', 0, 1)
  if not behind[1] then
    redis.call('HDEL', q.key.locks, lane)
    return
  end
  redis.call('ZREM', q.key.lanes, behind[1])
  local member = string.sub(behind[1], #start + 1)
  local _, _, _, _, available = struct.unpack(MEMBER, member)
  redis.call('ZADD', q.key.heads, available, member)
end
