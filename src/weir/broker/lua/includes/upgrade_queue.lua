--- include "keys"
--- include "release"
--- include "gate_time"
--- include "count_retrying"
-- Bring a queue of an older version to this one when it is first written back. `s` is removed, so that a program that
-- knows no versions fails on the queue instead of misreading it. `upgraded` tells `index` from which sequence number on
-- messages say their place themselves. Gates get the time from which on they may be found stale.
local function upgrade_queue(q, now)
  q.older = false
  -- Messages say their place since version 3.
  if q.version >= 3 then return end
  redis.call('HSET', q.key.base, 'upgraded', q.sequence_before)
  q.retrying, q.uncounted = count_retrying(q)
  if not q.version_0 then return end
  redis.call('HDEL', q.key.base, 's')
  if q.by_key then release(q, {''}, now) end
  for _, partition in ipairs(redis.call('HKEYS', q.key.gates)) do
    for _, operation in ipairs(redis.call('HKEYS', gate_key(q.key, partition))) do
      redis.call('ZADD', shard_key.gate_times, now, gate_time(q.ident, partition, operation))
    end
  end
  q.version_0 = false
end
