--- include "layout"
--- include "wait_of"
--- include "end_wait"
-- The wait of a message whose lease ended at `at`: how long it waited before it was handed out, and how long it was leased.
-- If an older program handed it out, all its time so far is unknown.
local function end_lease(q, id, member, handed_out, at)
  local _, _, _, enqueued = struct.unpack('>I8c16I4I8', member)
  local w = wait_of(redis.call('HGET', q.key.places, id), enqueued)
  if not handed_out then
    w = wait_of('\0', enqueued)
    w.n, w.lost, w.since = math.max(0, at - enqueued), false, at
    return w
  end
  local since, _ = struct.unpack('>I6', handed_out)
  end_wait(q, w, id, string.sub(member, struct.size(MEMBER) + 1), since, string.sub(handed_out, 7))
  w.leased, w.since = w.leased + math.max(0, at - since), at
  return w
end
