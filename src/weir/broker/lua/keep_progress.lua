-- keep_progress: keep what a handler tells of its progress, while it holds the lease. May run twice.
-- ARGV  7 how long it is kept in ms, 8 ident, 9 id (16 bytes) and token (16 bytes), 10 the progress
-- Reply {'ok', '1' if it is kept, '0' if the lease is not held} | {'unknown'}
--- include "call"
--- include "clock"
--- include "load_queue"
--- include "held"
local keep_ms, lease = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 2]
local q = load_queue(ARGV[FIRST_ARGUMENT + 1])
if not q then return {'unknown'} end
local leases, ids = held(q, clock(), lease, 32)
if not leases[1] then return {'ok', '0'} end
redis.call('SET', kept_key(q.environment, ids[1]), 'p' .. ARGV[FIRST_ARGUMENT + 3], 'PX', keep_ms)
return {'ok', '1'}
