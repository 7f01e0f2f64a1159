--- include "save_queue"
--- include "emit"
--- include "emit_lives"
--- include "emit_log"
-- The end of every change of a queue: write it back, emit one event if anything was counted or `always` is set, and emit
-- the lives of messages that ended. If the queue has a log, emit the messages too.
local function finish(q, operation, counts, waits, now, always)
  local ended, logged = count_lives(q), q.logged
  q.logged = nil
  save_queue(q, now)
  if always or next(counts) then emit(q, operation, counts, waits, now) end
  if ended then emit_lives(q, ended) end
  if ended and logged then emit_log(q, ended, logged) end
end
