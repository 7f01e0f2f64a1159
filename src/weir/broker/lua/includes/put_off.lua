--- include "layout"
--- include "open_lease"
--- include "end_lease"
--- include "note_attempt"
--- include "note_wait"
--- include "pack_place"
--- include "postpone"
-- Let the message of a lease wait for its next attempt. `how` says how this one ended; nil if it never began.
local function put_off(q, now, lease, attempts, delay, how)
  local _, _, consumer, member, handed_out = open_lease(lease)
  local sequence, id, _, enqueued, _, expires, priority, rest = struct.unpack(MEMBER, member)
  local order_key = string.sub(member, rest)
  local stands = pack_place(q, sequence, attempts, enqueued, now + delay, expires, priority)
  postpone(q, id, stands, attempts, now + delay, expires, order_key)
  local w = end_lease(q, id, member, handed_out, now)
  if how then note_attempt(q, w, id, handed_out, now, how, consumer) end
  redis.call('HSET', q.key.places, id, note_wait(stands, order_key, w))
end
