--- include "layout"
--- include "readings"
--- include "clock_of"
-- The queue's clocks as they stood at a time that may be past, packed. Time before `history` counts as unknown.
local function readings_at(q, at)
  local stop = q.clock_at
  if at >= stop then return readings(q) end
  local then_read = {
    paused_ms = q.paused_ms, queue_limit_ms = q.queue_limit_ms, environment_limit_ms = q.environment_limit_ms,
    unasked_ms = q.unasked_ms, unknown_ms = q.unknown_ms,
  }
  for place = #q.history - 6, 1, -7 do
    local start, status = struct.unpack('>I6c1', q.history, place)
    local from, clock = math.max(start, at), clock_of(status)
    if stop > from then
      if clock then then_read[clock] = then_read[clock] - (stop - from) end
      stop = from
    end
    if start <= at then break end
  end
  then_read.unknown_ms = then_read.unknown_ms - (stop - at)
  return readings(then_read)
end
