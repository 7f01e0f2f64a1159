--- include "layout"
--- include "readings_at"
-- From this time on a message may be handed out: the clocks run for it.
local function free_wait(q, w, at)
  local p, l, e, u, n = struct.unpack(READINGS, readings_at(q, at))
  w.p, w.q, w.e, w.u, w.n = p - w.p, l - w.q, e - w.e, u - w.u, n - UNKNOWN_BIAS - w.n
  w.frees, w.fresh, w.since = true, false, at
end
