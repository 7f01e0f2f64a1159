-- sweep: let time act on the queues of a shard that are due, soonest first.
-- ARGV  7 how many messages to touch at most
-- Reply {'ok', lapsed, expired, dead, orphans, '1' if the bound was reached}
--- include "call"
--- include "clock"
--- include "keys"
--- include "load_queue"
--- include "allow_draining"
--- include "tend"
--- include "reconcile"
local left = tonumber(ARGV[FIRST_ARGUMENT])
local now = clock()
allow_draining()
local lapsed, expired, dead, orphans = 0, 0, 0, 0
local visits = 0
while left > 0 and visits < 200 and deaths.bytes < deaths.most_bytes do
  local ident = redis.call('ZRANGEBYSCORE', shard_key.timers, '-inf', now, 'LIMIT', 0, 1)[1]
  if not ident then break end
  visits = visits + 1
  local q = load_queue(ident)
  if q then
    local used, lapses, expiries = tend(q, now, math.min(left, 250))
    left = left - used
    lapsed, dead, expired =
      lapsed + (lapses.lapsed or 0), dead + (lapses.dead or 0), expired + (expiries.expired or 0)
    orphans = orphans + reconcile(q)
  else
    redis.call('ZREM', shard_key.timers, ident)
    orphans = orphans + 1
  end
end
local more = redis.call('ZRANGEBYSCORE', shard_key.timers, '-inf', now, 'LIMIT', 0, 1)[1]
return {'ok', lapsed, expired, dead, orphans, more and '1' or '0'}
