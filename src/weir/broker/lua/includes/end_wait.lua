--- include "layout"
-- End the wait of a message that could be handed out, at `at`, when the clocks stood as `packed` says (READINGS). If it
-- became the head of its key while it was in line, `locks` says when, and how the clocks stood then.
local function end_wait(q, w, id, order_key, at, packed)
  if w.lost then
    w.n, w.lost, w.since = math.max(0, at - w.since), false, at
    return
  end
  local p, l, e, u, n = struct.unpack(READINGS, packed)
  n = n - UNKNOWN_BIAS
  local freed = (w.fresh or not w.frees) and q.ordered and redis.call('HGET', q.key.locks, order_key)
  if freed and #freed > 16 and string.sub(freed, 1, 16) == id then
    local since, fp, fl, fe, fu, fn = struct.unpack(HANDED_OUT, freed, 17)
    w.blocked = w.blocked + math.max(0, since - w.since)
    w.p, w.q, w.e, w.u, w.n = w.p + p - fp, w.q + l - fl, w.e + e - fe, w.u + u - fu, w.n + n - (fn - UNKNOWN_BIAS)
    w.starts = false
  elseif w.frees then
    w.p, w.q, w.e, w.u, w.n = p - w.p, l - w.q, e - w.e, u - w.u, n - w.n
  else
    w.n = w.n + math.max(0, at - w.since)
  end
  w.p, w.q, w.e, w.u = math.max(0, w.p), math.max(0, w.q), math.max(0, w.e), math.max(0, w.u)
  w.frees, w.fresh, w.since = false, false, at
end
