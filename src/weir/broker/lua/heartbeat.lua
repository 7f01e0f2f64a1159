-- heartbeat: emit the gauges of queues that nobody touched for a while, if they hold messages or changed while
-- metrics were off. While metrics are off it does nothing, so that `touched` still lists every queue afterwards.
-- ARGV  7 for how long nobody touched them in ms, 8 how many queues at most
-- Reply {'ok', how many were emitted, '1' if there may be more}
--- include "call"
--- include "clock"
--- include "keys"
--- include "load_queue"
--- include "allow_draining"
--- include "switched_off"
--- include "restore_touched"
--- include "finish"
local quiet_ms, limit = tonumber(ARGV[FIRST_ARGUMENT]), tonumber(ARGV[FIRST_ARGUMENT + 1])
if switched_off() then return {'ok', 0, '0'} end
local now = clock()
allow_draining()
local restoring = restore_touched()
local on_since = tonumber(redis.call('HGET', shard_key.metrics_switch, 'since_ms') or 0)
local quiet = redis.call(
  'ZRANGEBYSCORE', shard_key.touched, '-inf', now - quiet_ms, 'WITHSCORES', 'LIMIT', 0, limit
)
local emitted = 0
for i = 1, #quiet, 2 do
  local ident, touched = quiet[i], tonumber(quiet[i + 1])
  local q = load_queue(ident)
  redis.call('ZREM', shard_key.touched, ident)
  if q and (depth(q) + q.running > 0 or touched < on_since) then
    q.touched = 0
    finish(q, 'heartbeat', {}, {}, now, true)
    emitted = emitted + 1
  end
end
local more = restoring or #quiet == 2 * limit
return {'ok', emitted, more and '1' or '0'}
