--- include "layout"
--- include "readings"
-- The heads of these ordering keys are gone for good: the next of each key becomes its head. `locks` names it, so that
-- the messages behind it can say what they wait for, and notes when it became the head, how the clocks stood then, and
-- which message was the head before (`ids`, one per key; zeros without them). Messages without a key do not wait for each
-- other. If an older program let them wait, they are freed here, some at a time.
local function release(q, order_keys, now, ids)
  if not q.ordered then return end
  local heads, entries, locks, free, done, freed = {}, {}, {}, {}, {}, nil
  for i, order_key in ipairs(order_keys) do
    if not done[order_key] then
      done[order_key] = true
      local start = struct.pack('>I2', #order_key) .. order_key
      local count = q.by_key and order_key == '' and 200 or 1
      local behind =
        redis.call('ZRANGEBYLEX', q.key.lanes, '[' .. start, '(' .. start .. '\255', 'LIMIT', 0, count)
      if not behind[1] then
        free[#free + 1] = order_key
      end
      for _, entry in ipairs(behind) do
        local member = string.sub(entry, #start + 1)
        local _, id, _, _, available = struct.unpack(MEMBER, member)
        entries[#entries + 1] = entry
        heads[#heads + 1] = available
        heads[#heads + 1] = member
        locks[#locks + 1] = order_key
        freed = freed or struct.pack('>I6', now) .. readings(q)
        locks[#locks + 1] = id .. freed .. (ids and ids[i] or string.rep('\0', 16))
      end
    end
  end
  if #free > 0 then redis.call('HDEL', q.key.locks, unpack(free)) end
  if #entries > 0 then
    redis.call('ZREM', q.key.lanes, unpack(entries))
    redis.call('ZADD', q.key.heads, unpack(heads))
    redis.call('HSET', q.key.locks, unpack(locks))
  end
end
