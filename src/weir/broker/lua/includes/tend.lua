--- include "advance"
--- include "lapse"
--- include "promote"
--- include "expire"
--- include "forget_seen"
--- include "forget_revoked"
--- include "rearm"
--- include "finish"
--- include "save_queue"
-- Let time act on one queue: lapsed leases, due messages, expiry. Answers how much of `bound` was used, and
-- what happened.
local function tend(q, now, bound)
  advance(q, now)
  local lapses, expiries = {}, {}
  local used = lapse(q, now, lapses, bound)
  used = used + promote(q, now, bound - used)
  if used > 0 then finish(q, 'lapse', lapses, {}, now) end
  local gone = expire(q, now, expiries, bound - used)
  if gone > 0 then finish(q, 'expire', expiries, {}, now) end
  used = used + gone
  used = used + forget_seen(q, now, bound - used)
  used = used + forget_revoked(q, now, bound - used)
  rearm(q, now)
  save_queue(q, now)
  return used, lapses, expiries
end
