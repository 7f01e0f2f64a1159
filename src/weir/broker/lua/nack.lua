-- nack: failed; wait for the next attempt, or die after the last one.
-- ARGV  7… for each queue its ident, the failures and their errors (see `settle_failures`)
-- Reply {'ok', one letter per failure: d done, x dead, D and X the same a while ago, l lapsed; fewer letters than failures if many bytes died, then for each
--       d the ms until its retry} | {'stale'}
--       (what was settled before is answered without the ms)
--- include "call"
--- include "clock"
--- include "layout"
--- include "recorded"
--- include "record"
--- include "allow_draining"
--- include "settle_failures"
--- include "open_lease"
--- include "put_off"
--- include "release"
--- include "bury"
--- include "end_life"
--- include "tally"
local before = recorded()
if before == 'stale' then return {'stale'} end
if before then return {'ok', before} end
local now = clock()
allow_draining()
local answer = {'ok', ''}
local function step(q, lease, error, delay, chance, counts, handler, uncounted)
  local _, _, consumer, member, handed_out, origin = open_lease(lease)
  local _, id, attempts, enqueued, _, _, priority, rest = struct.unpack(MEMBER, member)
  if uncounted then
    attempts = attempts - 1
  elseif attempts >= q.max_attempts then
    end_life(q, now, {
      id = id, member = member, outcome = ENDED.dead, reason = DIED.attempts + 1, handler = handler, handed_out = handed_out,
      consumer = consumer, origin = origin, at = now, how = ATTEMPT.failed,
    })
    bury(q, now, id, attempts, enqueued, priority, DIED.attempts, error)
    release(q, {string.sub(member, rest)}, now, {id})
    tally(q, counts, 'dead', 1)
    return 'x'
  end
  if delay < 0 then
    delay = math.min(q.initial * 2 ^ math.max(0, math.min(attempts - 1, 40)), q.cap)
    delay = math.floor(delay - delay * q.jitter / JITTER_SCALE * chance)
  end
  if error ~= '' then redis.call('HSET', q.key.errors, id, error) end
  put_off(q, now, lease, attempts, delay, ATTEMPT.failed)
  tally(q, counts, 'nacked', 1)
  answer[#answer + 1] = delay
  return 'd'
end
answer[2] = settle_failures(FIRST_ARGUMENT, now, 'nack', step)
record(answer[2])
return answer
