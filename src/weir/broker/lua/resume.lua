-- resume: hand out messages again.
-- ARGV  7 ident
-- Reply {'ok'} | {'unknown'}
--- include "call"
--- include "clock"
--- include "load_queue"
--- include "allow_draining"
--- include "advance"
--- include "finish"
local q = load_queue(ARGV[FIRST_ARGUMENT])
if not q then return {'unknown'} end
allow_draining()
local now = clock()
advance(q, now)
q.paused = false
redis.call('HSET', q.key.base, 'paused', '0')
finish(q, 'resume', {}, {}, now, true)
return {'ok'}
