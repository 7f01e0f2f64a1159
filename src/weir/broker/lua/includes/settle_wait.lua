--- include "layout"
-- Make the parts of a wait until `at` final. If the message could be handed out from the start, the readings of that time
-- (`start`, nil if an older program put it in) are still to be subtracted.
local function settle_wait(w, start, enqueued, at)
  if w.starts then
    if start then
      local p, l, e, u, n = struct.unpack(READINGS, start)
      w.p, w.q, w.e, w.u, w.n = w.p - p, w.q - l, w.e - e, w.u - u, w.n - (n - UNKNOWN_BIAS)
    else
      -- Time that no other part explains is unknown.
      w.p, w.q, w.e, w.u = 0, 0, 0, 0
      w.n = math.max(0, at - enqueued - w.leased - w.scheduled - w.backoff - w.blocked)
    end
  end
  -- Negative only if the server's clock went back.
  for _, part in ipairs({'p', 'q', 'e', 'u', 'n'}) do w[part] = math.max(0, w[part]) end
end
