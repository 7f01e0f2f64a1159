--- include "layout"
-- The queue's clocks as they stand after `advance`, packed (READINGS).
local function readings(q)
  return struct.pack(READINGS, q.paused_ms, q.queue_limit_ms, q.environment_limit_ms, q.unasked_ms,
    q.unknown_ms + UNKNOWN_BIAS)
end
