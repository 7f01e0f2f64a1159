--- include "keys"
--- include "state_record"
--- include "load_queue"
--- include "retire"
--- include "save_queue"
-- Take messages that will not come off the reserved ones of a queue, whether the queue is defined or forgotten.
local function unreserve(ident, messages, now)
  if messages < 1 then return end
  local q = load_queue(ident)
  if q then
    q.reserved = q.reserved - messages
    save_queue(q, now)
    return
  end
  local retired = redis.call('HGET', shard_key.retired, ident)
  if not retired then return end
  local state = {}
  unpack_state(state, retired)
  state.reserved = state.reserved - messages
  retire(ident, state)
end
