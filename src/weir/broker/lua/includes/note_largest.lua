-- A reply has room for a whole batch of bodies that are no longer than the first of these. Longer ones are noted in steps of
-- the second.
local SMALL_BODY, BODY_STEP = 16384, 65536
-- Note that a body of `size` bytes comes in. `largest` says how long the bodies of the queue are at most, so that `serve`
-- knows how many it may read at once. A queue that holds nothing begins anew.
local function note_largest(q, size)
  if q.largest == SMALL_BODY and size <= SMALL_BODY then return end
  local holds = q.depth_before + q.running_before > 0
  -- Longer bodies of an older program may wait there.
  if holds and not q.largest then return end
  local largest = size <= SMALL_BODY and SMALL_BODY or math.ceil(size / BODY_STEP) * BODY_STEP
  if holds then largest = math.max(largest, q.largest) end
  if largest ~= q.largest then redis.call('HSET', q.key.base, 'largest', largest) end
  q.largest = largest
end
