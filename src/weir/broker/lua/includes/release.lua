--- include "layout"
-- The head of an ordering key is gone for good: the next of its key becomes the head. Messages without a key wait for
-- nobody; those that an older program let wait for each other are freed here, some at a time.
local function release(q, order_key)
  if not q.ordered then return end
  local start = struct.pack('>I2', #order_key) .. order_key
  local count = q.by_key and order_key == '' and 200 or 1
  local behind =
    redis.call('ZRANGEBYLEX', q.key.lanes, '[' .. start, '(' .. start .. '\255', 'LIMIT', 0, count)
  if not behind[1] then
    redis.call('HDEL', q.key.locks, order_key)
    return
  end
  for _, entry in ipairs(behind) do
    redis.call('ZREM', q.key.lanes, entry)
    local member = string.sub(entry, #start + 1)
    local _, _, _, _, available = struct.unpack(MEMBER, member)
    redis.call('ZADD', q.key.heads, available, member)
  end
end
