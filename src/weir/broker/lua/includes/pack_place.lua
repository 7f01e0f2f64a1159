--- include "layout"
-- A place: a member without its id and its ordering key. Without a sequence number it gets the next.
local function pack_place(q, sequence, attempts, enqueued, available, expires, priority)
  if not sequence then
    q.sequence = q.sequence + 1
    sequence = q.sequence
  end
  return struct.pack(PLACE, sequence, attempts, enqueued, available, expires, priority)
end
