-- why: how long a message has waited so far, and for what. Reads only.
-- ARGV  7 ident, 8 id, 16 bytes
-- Reply {'ok', state, when it was put in, until when the parts count, then the parts in ms (scheduled, back-off, blocked,
--       paused, queue limit, environment limit, unasked, unknown), how long it was leased before, the id of the head that it
--       waits behind ('' if there is none or it is unknown)}
--       | {'ok', ''} if there is none | {'ok', 'unindexed'} if an older program put it in and it is not indexed yet
--       | {'unknown'}
--- include "call"
--- include "clock"
--- include "keys"
--- include "layout"
--- include "load_queue"
--- include "advance"
--- include "member_of"
--- include "open_lease"
--- include "place_of_body"
--- include "end_lease"
--- include "wait_until"
--- include "settle_wait"
local ident, id = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1]
local q = load_queue(ident)
if not q then return {'unknown'} end
local body = redis.call('HGET', q.key.bodies, id)
if not body then return {'ok', ''} end
local now = clock()
advance(q, now)
local state, member, w, behind = 'ready', nil, nil, ''
local lease = redis.call('HGET', q.key.leases, id)
if lease then
  local handed_out, since, _
  _, _, _, member, handed_out = open_lease(lease)
  state, since = 'leased', handed_out and struct.unpack('>I6', handed_out) or now
  w = end_lease(q, id, member, handed_out, since)
  now = since
else
  local unindexed
  member, unindexed = member_of(q, id)
  if unindexed then return {'ok', 'unindexed'} end
  if not member then return {'ok', ''} end
  local _, _, attempts, _, _, _, _, rest = struct.unpack(MEMBER, member)
  local where = 'ready'
  if redis.call('ZSCORE', q.key.delayed, member) then
    state, where = attempts > 0 and 'retrying' or 'scheduled', 'delayed'
  elseif not redis.call('ZSCORE', q.heads_key, member) then
    if not redis.call('ZSCORE', q.key.ready, member) then return {'ok', ''} end
    state, where = 'blocked', 'blocked'
    behind = string.sub(redis.call('HGET', q.key.locks, string.sub(member, rest)) or '', 1, 16)
  end
  w = wait_until(q, id, member, where, now)
end
local _, _, _, enqueued = struct.unpack('>I8c16I4I8', member)
local _, start = place_of_body(body)
settle_wait(w, start, enqueued, now)
return {
  'ok', state, enqueued, now, w.scheduled, w.backoff, w.blocked, w.p, w.q, w.e, w.u, w.n, w.leased,
  #behind == 16 and behind or '',
}
