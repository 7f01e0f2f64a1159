--- include "layout"
--- include "readings"
--- include "wait_of"
--- include "end_delay"
--- include "end_wait"
--- include "free_wait"
-- How long a waiting message has waited until now, and for what; `where` is 'ready', 'blocked' or 'delayed'. If its time has
-- come, but nobody placed it yet, it counts as waiting for whatever it will wait for once it is placed.
local function wait_until(q, id, member, where, now)
  local sequence, _, attempts, enqueued, available, _, _, rest = struct.unpack(MEMBER, member)
  local order_key, w = string.sub(member, rest), wait_of(redis.call('HGET', q.key.places, id), enqueued)
  if where == 'delayed' then
    end_delay(w, attempts, math.min(now, available))
    if available >= now then return w end
    local free = not q.ordered or sequence > 0 or (q.by_key and order_key == '')
      or redis.call('HEXISTS', q.key.locks, order_key) == 0
    where = free and 'ready' or 'blocked'
    if free then free_wait(q, w, available) end
  end
  if where == 'ready' or w.lost then
    end_wait(q, w, id, order_key, now, readings(q))
  else
    if w.fresh then w.fresh, w.frees, w.starts = false, false, false end
    w.blocked, w.since = w.blocked + math.max(0, now - w.since), now
  end
  return w
end
