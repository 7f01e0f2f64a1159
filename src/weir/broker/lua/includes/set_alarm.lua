--- include "keys"
-- List the queue among the timers, if time changes it earlier than they say.
local function set_alarm(q)
  if not q.alarm then return end
  if q.alarm_set == 0 or q.alarm < q.alarm_set then
    redis.call('ZADD', shard_key.timers, q.alarm, q.ident)
    q.alarm_set = q.alarm
  end
  q.alarm = nil
end
