-- End the wait of a message for its time or a retry, at `at`.
local function end_delay(w, attempts, at)
  if w.fresh then w.fresh, w.frees, w.starts = false, false, false end
  local spent = math.max(0, at - w.since)
  if w.lost then
    w.n, w.lost = spent, false
  elseif attempts > 0 then
    w.backoff = w.backoff + spent
  else
    w.scheduled = w.scheduled + spent
  end
  w.since = math.max(w.since, at)
end
