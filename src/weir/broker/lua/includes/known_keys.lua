--- include "keys"
--- include "layout"
-- The remembered answers to the idempotency keys of an enqueue call, in the order of the messages that have a key; false
-- where there is none. One HMGET for all keys costs less than one look per key.
local function known_keys(q, first, stride)
  local size, wanted = struct.size(ARRIVAL), {}
  for at = first, #ARGV, stride do
    local head = ARGV[at]
    if #head > 16 then
      local key_size, idempotency_size = string.byte(head, size - 1, size)
      if idempotency_size > 0 then
        local from = size + key_size + 1
        wanted[#wanted + 1] = string.sub(head, from, from + idempotency_size - 1)
      end
    end
  end
  return #wanted > 0 and redis.call('HMGET', q.key.seen, unpack(wanted)) or wanted
end
