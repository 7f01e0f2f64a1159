--- include "save_queue"
--- include "emit"
--- include "emit_lives"
-- What every change of a queue ends with: write it back, emit one event if anything was counted or `always` is set, and
-- emit the lives of what ended.
local function finish(q, operation, counts, waits, now, always)
  local ended = count_lives(q)
  save_queue(q, now)
  if always or next(counts) then emit(q, operation, counts, waits, now) end
  if ended then emit_lives(q, ended) end
end
