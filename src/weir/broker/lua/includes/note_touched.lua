--- include "keys"
--- include "depth"
--- include "switched_off"
local TOUCH_MS = 1000
-- Note that the queue changed and holds messages, about once a second. While metrics are off, empty queues are noted
-- too, so that `heartbeat` emits an event of each queue that changed, once metrics are on again.
local function note_touched(q, now)
  if math.abs(now - q.touched) >= TOUCH_MS and (depth(q) + q.running > 0 or switched_off()) then
    redis.call('ZADD', shard_key.touched, now, q.ident)
    q.touched = now
  end
end
