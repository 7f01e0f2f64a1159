-- count_messages: how many messages of a queue are in each state. Reads only.
-- ARGV  7 ident
-- Reply {'ok', ready, waiting for their time or a retry, leased, of these waiting for a retry (-1: unknown), blocked}
--       | {'unknown'}
--- include "call"
--- include "keys"
--- include "load_queue"
--- include "count_retrying"
local q = load_queue(ARGV[FIRST_ARGUMENT])
if not q then return {'unknown'} end
local retrying, uncounted = q.retrying, q.uncounted
if q.older then retrying, uncounted = count_retrying(q) end
return {
  'ok', redis.call('ZCARD', q.heads_key), redis.call('ZCARD', q.key.delayed), q.running,
  uncounted == 1 and -1 or retrying, redis.call('ZCARD', q.key.lanes),
}
