--- include "layout"
-- Take a waiting member out of line, wherever it waits. Answers 'ready', 'blocked' or 'delayed', and whether it was the
-- head of its ordering key; nil if it waits nowhere.
local function withdraw(q, member)
  local sequence, _, attempts, _, _, _, _, rest = struct.unpack(MEMBER, member)
  redis.call('ZREM', q.key.expiry, member)
  if redis.call('ZREM', q.key.ready, member) == 1 then
    if not q.ordered then return 'ready', false end
    if redis.call('ZREM', q.key.heads, member) == 1 then return 'ready', true end
    redis.call('ZREM', q.key.lanes, struct.pack('>I2', #member - rest + 1) .. string.sub(member, rest) .. member)
    return 'blocked', false
  end
  if redis.call('ZREM', q.key.delayed, member) == 0 then return nil, false end
  if attempts > 0 then q.retrying = math.max(0, q.retrying - 1) end
  return 'delayed', q.ordered and sequence > 0
end
