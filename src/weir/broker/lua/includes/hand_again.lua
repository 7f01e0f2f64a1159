--- include "layout"
--- include "load_queue"
--- include "open_lease"
--- include "handed_in"
-- The reply of a dequeue that already ran and whose reply was lost: the same messages, as far as their
-- leases still hold.
local function hand_again(summary, now)
  local reply = {'ok', 0, now, 0}
  local token, groups = handed_in(summary)
  for _, group in ipairs(groups) do
    local q, messages, ends = load_queue(group.ident), {}, 0
    for _, id in ipairs(q and group.ids or {}) do
      local lease = redis.call('HGET', q.key.leases, id)
      local deadline, holder, _, member = 0, '', nil, ''
      if lease then deadline, holder, _, member = open_lease(lease) end
      if holder == token and deadline > now then
        local front = string.sub(member, 1, 53)
        local error = struct.unpack('>I4', front, 25) > 1 and redis.call('HGET', q.key.errors, id) or ''
        messages[#messages + 1] = front .. struct.pack('>I2', #error) .. error
          .. (redis.call('HGET', q.key.bodies, id) or string.rep('\0', 6))
        ends = deadline
      end
    end
    if #messages > 0 then
      reply[#reply + 1] = q.ident
      reply[#reply + 1] = #messages
      reply[#reply + 1] = ends
      for _, message in ipairs(messages) do reply[#reply + 1] = message end
    end
  end
  return reply
end
