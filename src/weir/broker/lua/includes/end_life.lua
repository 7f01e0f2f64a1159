--- include "layout"
--- include "life_layout"
--- include "keeps_life"
--- include "origin_of_body"
--- include "settle_wait"
--- include "life_of_wait"
--- include "life_of_lease"
--- include "body_for_log"
--- include "log_body"
local NO_BODY, NOBODY, NO_LOG = string.rep('\0', 6), string.rep('\0', 16), '\0'
-- Write down the life of a message that ends now, in full; `finish` emits it. `q.ended` holds a head and the rest for each
-- life, which are joined once, when they are emitted. Call it before anything of the message is dropped. `m` says how it
-- ends: `id`, `member`, `outcome`, `reason` (plus 1, nil: none), `handler` (its time plus 1, nil: not told); then either
-- `where` it waits, or of its lease `handed_out`, `consumer`, `origin`, `at` (its end) and `how`; and `body` if it is at
-- hand, or false if the log has no room for it.
local function end_life(q, now, m)
  if not keeps_life(q, m.id) then return end
  local body = m.body
  if q.log_keep > 0 and body == nil then body = body_for_log(q, m.id) end
  local _, id, attempts, enqueued, available, _, priority, rest = struct.unpack(MEMBER, m.member)
  local origin = m.origin or origin_of_body(body or redis.call('HGET', q.key.bodies, id) or NO_BODY)
  local first, size, start = struct.unpack('>I8', origin), struct.size(ORIGIN), nil
  if first > 0 then start = string.sub(origin, size - struct.size(READINGS) + 1, size) end
  local w, began
  if m.where then w, began = life_of_wait(q, now, m) else w, began = life_of_lease(q, m) end
  -- The wait ends when the last attempt begins, so that attempt does not count as leased time within the wait.
  local leased, waited_until = w.leased, now
  if not m.where then
    waited_until = began or m.at
    w.leased = leased - math.max(0, m.at - waited_until)
  end
  settle_wait(w, start, enqueued, waited_until)
  local lock = q.ordered and redis.call('HGET', q.key.locks, string.sub(m.member, rest)) or ''
  local blocker = #lock == FREED_LOCK and string.sub(lock, 1, 16) == id and string.sub(lock, -16) or NOBODY
  local payload, key_size = struct.unpack(ORIGIN_END, origin, #origin - struct.size(ORIGIN_END) + 1)
  local log = w.log or NO_LOG
  local ended = q.ended or {}
  q.ended = ended
  ended[#ended + 1] = struct.pack(LIFE_HEAD, LIFE_IN_FULL, m.outcome, m.reason or 0, now, m.handler or 0)
  ended[#ended + 1] = struct.pack(LIFE_FULL, id, enqueued, first > 0 and first or available, began or 0, priority, attempts,
      math.max(0, waited_until - enqueued - w.leased), leased, w.scheduled, w.backoff, w.blocked, w.p, w.q, w.e, w.u, w.n,
      blocker, payload, key_size, string.byte(log))
    .. string.sub(origin, size + 1, size + key_size) .. string.sub(log, 2)
  if q.log_keep > 0 then log_body(q, body) end
end
