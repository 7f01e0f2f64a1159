--- include "layout"
--- include "tally"
--- include "release"
--- include "withdraw"
--- include "bury"
--- include "end_life"
-- Expire one waiting message, wherever it waits. It becomes a dead letter, and is counted as expired.
local function expire_member(q, now, member, counts)
  local _, id, attempts, enqueued, _, _, priority, rest = struct.unpack(MEMBER, member)
  local waited, headed = withdraw(q, member)
  if not waited then return end
  local error, body = redis.call('HGET', q.key.errors, id) or '', redis.call('HGET', q.key.bodies, id)
  end_life(q, now, {
    id = id, member = member, outcome = ENDED.expired, reason = DIED.expired + 1, where = waited, body = body or nil,
  })
  bury(q, now, id, attempts, enqueued, priority, DIED.expired, error, body)
  if headed then release(q, {string.sub(member, rest)}, now, {id}) end
  tally(q, counts, 'expired', 1)
end
