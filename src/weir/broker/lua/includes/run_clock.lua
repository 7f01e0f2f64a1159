--- include "clock_of"
-- Sixteen changes of status: when (6 bytes), and to which (1 byte).
local MOST_HISTORY = 16 * 7
-- Let the clock of one status run from `from` to `to`; then all clocks of the queue stand at `to`. In status 't' there is no
-- reason to wait, and no clock runs. `history` keeps the last changes of status: when, and to which.
local function run_clock(q, status, from, to)
  local clock = clock_of(status)
  if clock then q[clock] = q[clock] + to - from end
  if string.sub(q.history, -1) ~= status then
    q.history = q.history .. struct.pack('>I6', from) .. status
    if #q.history > MOST_HISTORY then q.history = string.sub(q.history, 8) end
  end
  q.clock_at = to
end
