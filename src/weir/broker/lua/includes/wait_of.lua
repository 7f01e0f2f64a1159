--- include "layout"
-- How long a message has waited so far, and for what, as its noted place says; without a noted place it never moved.
-- `frees` is true while clocks run for it: then `p`, `q`, `e`, `u` and `n` are to be subtracted from the readings, else they
-- are the times that were counted. `starts` is true while the readings at the end of its body are still to be subtracted.
-- `log` holds its attempts so far, as `note_attempt` writes them.
local function wait_of(noted, enqueued)
  local w = {since = enqueued, scheduled = 0, backoff = 0, blocked = 0, leased = 0, p = 0, q = 0, e = 0, u = 0, n = 0}
  if not noted then
    w.fresh, w.frees, w.starts = true, true, true
  elseif string.byte(noted) == 0 then
    -- Noted by an older program: nothing is known of it.
    w.lost = true
  else
    local flags, rest
    flags, w.since, w.scheduled, w.backoff, w.blocked, w.leased, w.p, w.q, w.e, w.u, w.n, rest =
      struct.unpack(WAIT, noted, struct.size(PLACE) + 1)
    w.n, w.frees, w.starts = w.n - UNKNOWN_BIAS, flags % 2 == 1, flags % 4 >= 2
    if flags >= 4 then
      local size, start = struct.unpack('>I2', noted, rest)
      w.log = string.sub(noted, start, start + size - 1)
    end
  end
  return w
end
