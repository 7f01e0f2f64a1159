-- heartbeat: emit the gauges of non-empty queues that nobody touched for a while.
-- ARGV  7 for how long in ms, 8 how many queues at most
-- Reply {'ok', how many}
--- include "call"
--- include "clock"
--- include "keys"
--- include "load_queue"
--- include "allow_draining"
--- include "finish"
local quiet_ms, limit = tonumber(ARGV[FIRST_ARGUMENT]), tonumber(ARGV[FIRST_ARGUMENT + 1])
local now = clock()
allow_draining()
local quiet = redis.call('ZRANGEBYSCORE', shard_key.touched, '-inf', now - quiet_ms, 'LIMIT', 0, limit)
local emitted = 0
for _, ident in ipairs(quiet) do
  local q = load_queue(ident)
  redis.call('ZREM', shard_key.touched, ident)
  if q and depth(q) + q.running > 0 then
    q.touched = 0
    finish(q, 'heartbeat', {}, {}, now, true)
    emitted = emitted + 1
  end
end
return {'ok', emitted}
