--- include "run_clock"
--- include "spans"
--- include "ask_ms"
--- include "environment_totals"
-- Let the queue's clocks run up to now. A message that may be handed out can wait for several reasons, and the first that
-- holds counts: paused, the queue's limit, the environment's limit, nobody asked for a second. Call it before any of these
-- changes, because it assumes that nothing changed since the clocks last ran.
local function advance(q, now)
  local from = q.clock_at
  if from == 0 then
    q.clock_at = now
    return
  end
  if now <= from then return end
  if q.paused then return run_clock(q, 'p', from, now) end
  if q.concurrency > 0 and q.running >= q.concurrency then return run_clock(q, 'q', from, now) end
  local totals, asked_until = environment_totals(q), q.asked_at > 0 and q.asked_at + ASK_MS or 0
  local limited, asked = totals[4], totals[5]
  if not limited and asked_until >= now then return run_clock(q, 't', from, now) end
  local function run_unlimited(start, stop)
    if asked_until > start then
      run_clock(q, 't', start, math.min(asked_until, stop))
      start = asked_until
    end
    if start >= stop then return end
    if not asked then return run_clock(q, 'u', start, stop) end
    for _, span in ipairs(spans(asked, start, stop)) do
      run_clock(q, span[3] == 'in' and 'u' or span[3] == 'out' and 't' or 'n', span[1], span[2])
    end
  end
  if not limited then return run_unlimited(from, now) end
  for _, span in ipairs(spans(limited, from, now)) do
    if span[3] == 'out' then
      run_unlimited(span[1], span[2])
    else
      run_clock(q, span[3] == 'in' and 'e' or 'n', span[1], span[2])
    end
  end
end
