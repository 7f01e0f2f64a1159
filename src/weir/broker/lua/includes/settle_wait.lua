--- include "layout"
-- Make the parts of a wait until this time final. If it could be handed out from the start, the readings of then (`start`, nil
-- if an older program put it in) are still to be subtracted.
local function settle_wait(w, start, enqueued, at)
  if w.starts then
    if start then
      local p, l, e, u, n = struct.unpack(READINGS, start)
      w.p, w.q, w.e, w.u, w.n = w.p - p, w.q - l, w.e - e, w.u - u, w.n - (n - UNKNOWN_BIAS)
    else
      -- What no other part explains is not known.
      w.p, w.q, w.e, w.u = 0, 0, 0, 0
      w.n = math.max(0, at - enqueued - w.leased - w.scheduled - w.backoff - w.blocked)
    end
  end
  -- Less than nothing only if the server's time went back.
  for _, part in ipairs({'p', 'q', 'e', 'u', 'n'}) do w[part] = math.max(0, w[part]) end
end
