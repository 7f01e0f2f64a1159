-- state: one queue or every queue of an environment right now. Reads only.
-- ARGV  7 ident of a queue, or of an environment, 8 'queue' or 'environment', 9 continue after this
--       ident ('' to begin), 10 how many at most
-- Reply {'ok', for each queue: ident, depth, delayed, running, limit, environment depth, running and
--       limit, oldest age in ms, '1' if paused, '1' if it was ever asked for messages, packed state}
--       | {'unknown'}
--- include "call"
--- include "clock"
--- include "keys"
--- include "state_record"
--- include "load_queue"
--- include "depth"
--- include "oldest"
local ident, kind = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1]
local after, limit = ARGV[FIRST_ARGUMENT + 2], tonumber(ARGV[FIRST_ARGUMENT + 3])
local now = clock()
local idents = {ident}
if kind == 'environment' then
  local from = after == '' and '-' or '(' .. after
  idents = redis.call('ZRANGEBYLEX', environment_keys(ident).queues, from, '+', 'LIMIT', 0, limit)
end
local reply = {'ok'}
for _, name in ipairs(idents) do
  local q = load_queue(name)
  if not q then return {'unknown'} end
  local totals = redis.call('HMGET', q.environment_key.base, 'depth', 'running', 'limit')
  local values = {
    name, depth(q), redis.call('ZCOUNT', q.key.delayed, '(' .. now, '+inf'), q.running, q.concurrency,
    tonumber(totals[1] or 0), tonumber(totals[2] or 0), tonumber(totals[3] or 0), now - oldest(q, now),
    q.paused and '1' or '0', q.popped and '1' or '0', pack_state(q),
  }
  for _, value in ipairs(values) do reply[#reply + 1] = value end
end
return reply
