--- include "life_layout"
--- include "keeps_life"
--- include "open_lease"
--- include "end_life"
--- include "log_body"
--- include "acked_bodies"
local LEASED_NAME = struct.size(LEASE)
-- Write down the lives of messages that are acked now; `finish` emits them. Most messages were acked on their first attempt
-- and never moved: their lease holds all that a life needs, and is copied without its token. `handlers` holds the times of
-- their handlers plus 1, where they are told.
local function end_acked(q, now, ids, leases, order_keys, handlers)
  if q.life_rule == 1 then return end
  local sub, byte, keeps_all = string.sub, string.byte, q.life_rule == 0
  local moved = redis.call('EXISTS', q.key.places) == 1 and redis.call('HMGET', q.key.places, unpack(ids)) or {}
  local locks = q.ordered and redis.call('HMGET', q.key.locks, unpack(order_keys)) or {}
  local ended, direct = q.ended or {}, struct.pack(LIFE_HEAD, LIFE_DIRECT, ENDED.acked, 0, now, 0)
  q.ended = ended
  local bodies = q.log_keep > 0 and acked_bodies(q, ids, leases) or nil
  for i, lease in ipairs(leases) do
    local id, handler, lock = ids[i], handlers[i], locks[i]
    if not keeps_all and not keeps_life(q, id) then
      -- Nothing of it is kept.
    elseif moved[i] or byte(lease, 2) < 2 or (lock and #lock > 16 and #lock < FREED_LOCK) then
      -- It moved, or an older program handed it out or made it the head of its key.
      local _, _, consumer, member, handed_out, origin = open_lease(lease)
      end_life(q, now, {
        id = id, member = member, outcome = ENDED.acked, handler = handler, handed_out = handed_out, consumer = consumer,
        origin = origin, at = now, how = ATTEMPT.acked, body = bodies and bodies[i],
      })
    elseif lock and #lock == FREED_LOCK and sub(lock, 1, 16) == id then
      ended[#ended + 1] = struct.pack(LIFE_HEAD, LIFE_FREED, ENDED.acked, 0, now, handler or 0)
      ended[#ended + 1] = sub(lease, LEASED_NAME) .. sub(lock, 17)
      if bodies then log_body(q, bodies[i]) end
    else
      local at = #ended
      ended[at + 1] = handler and struct.pack(LIFE_HEAD, LIFE_DIRECT, ENDED.acked, 0, now, handler) or direct
      ended[at + 2] = sub(lease, LEASED_NAME)
      if bodies then log_body(q, bodies[i]) end
    end
  end
end
