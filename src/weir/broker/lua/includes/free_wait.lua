--- include "layout"
--- include "readings_at"
-- From this time on a message may be handed out: the clocks run for it.
local function free_wait(q, w, at)
  local p, l, e, u, n = struct.unpack(READINGS, readings_at(q, at))
  -- Negative only if the server's clock went back.
  w.p, w.q, w.e, w.u = math.max(0, p - w.p), math.max(0, l - w.q), math.max(0, e - w.e), math.max(0, u - w.u)
  w.n = n - UNKNOWN_BIAS - w.n
  w.frees, w.fresh, w.since = true, false, at
end
