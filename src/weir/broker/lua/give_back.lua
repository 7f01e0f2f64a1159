-- give_back: undo the dequeue that the caller made in this slot under the number before this call's, because its answer
-- reached nobody. Its messages are available again, and were not tried. If it has not run yet, it never will.
-- Reply {'ok', how many were given back} | {'stale'}
--- include "call"
--- include "clock"
--- include "layout"
--- include "recorded"
--- include "record"
--- include "allow_draining"
--- include "load_queue"
--- include "advance"
--- include "handed_in"
--- include "open_lease"
--- include "let_go"
--- include "put_off"
--- include "finish"
local before = recorded()
if before == 'stale' then return {'stale'} end
if before then return {'ok', tonumber(before)} end
local now, summary = clock(), redis.call('GET', SLOT_KEY)
allow_draining()
local given_back = 0
if summary and struct.unpack('>I8', summary) == CALL_NUMBER - 1 then
  local token, groups = handed_in(string.sub(summary, 9))
  for _, group in ipairs(groups) do
    local q, done = load_queue(group.ident), {}
    if q then
      advance(q, now)
      for _, id in ipairs(group.ids) do
        local lease = redis.call('HGET', q.key.leases, id)
        if lease then
          local deadline, holder, _, member = open_lease(lease)
          if holder == token and deadline > now then
            local _, _, attempts = struct.unpack(MEMBER, member)
            put_off(q, now, lease, attempts - 1, 0)
            done[#done + 1] = id
          end
        end
      end
      let_go(q, done)
      if #done > 0 then finish(q, 'nack', {}, {}, now, true) end
    end
    given_back = given_back + #done
  end
end
record(tostring(given_back))
return {'ok', given_back}
