-- dead_letter: give up on messages at once, whatever attempts are left.
-- ARGV  7… for each queue its ident, the failures and their errors (see `settle_failures`)
-- Reply {'ok', one letter per failure: d done, D done a while ago, l lapsed; fewer letters than failures if many bytes died} | {'stale'}
--- include "call"
--- include "clock"
--- include "layout"
--- include "recorded"
--- include "record"
--- include "allow_draining"
--- include "settle_failures"
--- include "open_lease"
--- include "release"
--- include "bury"
--- include "end_life"
--- include "tally"
local before = recorded()
if before == 'stale' then return {'stale'} end
if before then return {'ok', before} end
local now = clock()
allow_draining()
local function step(q, lease, error, _, _, counts, handler)
  local _, _, consumer, member, handed_out, origin = open_lease(lease)
  local _, id, attempts, enqueued, _, _, priority, rest = struct.unpack(MEMBER, member)
  end_life(q, now, {
    id = id, member = member, outcome = ENDED.dead, reason = DIED.rejected + 1, handler = handler, handed_out = handed_out,
    consumer = consumer, origin = origin, at = now, how = ATTEMPT.rejected,
  })
  bury(q, now, id, attempts, enqueued, priority, DIED.rejected, error)
  release(q, {string.sub(member, rest)}, now, {id})
  tally(q, counts, 'dead', 1)
  return 'd'
end
local reply = settle_failures(FIRST_ARGUMENT, now, 'dead_letter', step)
record(reply)
return {'ok', reply}
