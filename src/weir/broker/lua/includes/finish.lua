--- include "save_queue"
--- include "emit"
-- What every change of a queue ends with: write it back, and emit one event if anything was counted or
-- `always` is set.
local function finish(q, operation, counts, waits, now, always)
  save_queue(q, now)
  if always or next(counts) then emit(q, operation, counts, waits, now) end
end
