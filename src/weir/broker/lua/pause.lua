-- pause: hand out nothing more until resume; leased messages may still be settled.
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
q.paused = true
redis.call('HSET', q.key.base, 'paused', '1')
finish(q, 'pause', {}, {}, now, true)
return {'ok'}
