--- include "layout"
--- include "pack_place"
--- include "place"
--- include "wait_of"
--- include "end_delay"
--- include "free_wait"
--- include "note_wait"
-- Place messages whose time has come. At most `bound`. In an ordered queue a member with a sequence number is the
-- head of its key, which comes back.
local function promote(q, now, bound)
  local members = redis.call('ZRANGEBYSCORE', q.key.delayed, '-inf', now, 'LIMIT', 0, bound)
  if #members == 0 then return 0 end
  redis.call('ZREM', q.key.delayed, unpack(members))
  redis.call('ZREM', q.key.expiry, unpack(members))
  local ids, places = {}, {}
  for i, member in ipairs(members) do ids[i] = string.sub(member, 9, 24) end
  local noted = redis.call('HMGET', q.key.places, unpack(ids))
  for i, member in ipairs(members) do
    local sequence, id, attempts, enqueued, available, expires, priority, rest = struct.unpack(MEMBER, member)
    local returning = q.ordered and sequence > 0
    local order_key = string.sub(member, rest)
    local stands = pack_place(q, returning and sequence or nil, attempts, enqueued, available, expires, priority)
    local blocked = place(q, id, stands, available, expires, priority, order_key, returning)
    local w = wait_of(noted[i], enqueued)
    end_delay(w, attempts, available)
    if not blocked then free_wait(q, w, available) end
    places[2 * i - 1], places[2 * i] = id, note_wait(stands, order_key, w)
    if attempts > 0 then q.retrying = math.max(0, q.retrying - 1) end
  end
  redis.call('HSET', q.key.places, unpack(places))
  if q.uncounted == 1 and redis.call('EXISTS', q.key.delayed) == 0 then q.retrying, q.uncounted = 0, 0 end
  return #members
end
