--- include "layout"
--- include "load_queue"
--- include "open_lease"
-- The reply of a dequeue that already ran and whose reply was lost: the same messages, as far as their
-- leases still hold.
local function hand_again(summary, now, token)
  local reply, from = {'ok', 0, now, 0}, 1
  while from <= #summary do
    local size, count, start = struct.unpack('>I2I2', summary, from)
    local q = load_queue(string.sub(summary, start, start + size - 1))
    from = start + size
    local messages, ends = {}, 0
    for i = 1, q and count or 0 do
      local id = string.sub(summary, from + 16 * (i - 1), from + 16 * i - 1)
      local lease = redis.call('HGET', q.key.leases, id)
      local deadline, holder, _, member = 0, '', nil, ''
      if lease then deadline, holder, _, member = open_lease(lease) end
      if holder == token and deadline > now then
        local front = string.sub(member, 1, 53)
        local error = redis.call('HGET', q.key.errors, id) or ''
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
    from = from + 16 * count
  end
  return reply
end
