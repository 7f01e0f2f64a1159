-- resume: hand out again.
-- ARGV  7 ident
-- Reply {'ok'} | {'unknown'}
--- include "call"
--- include "clock"
--- include "load_queue"
--- include "allow_draining"
--- include "finish"
local q = load_queue(ARGV[FIRST_ARGUMENT])
if not q then return {'unknown'} end
allow_draining()
q.paused = false
redis.call('HSET', q.key.base, 'paused', '0')
finish(q, 'resume', {}, {}, clock(), true)
return {'ok'}
