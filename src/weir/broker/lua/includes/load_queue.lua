--- include "call"
--- include "keys"
--- include "mark"
--- include "default_priority"
--- include "promises_record"
--- include "state_record"
--- include "depth"
-- A queue as a table: its promises, odometers and keys; nil if it is not defined. `save_queue` writes
-- it back. Waiting messages are never counted: depth follows from the odometers and what is running.
local function load_queue(ident)
  local keys = queue_keys(ident)
  local stored = redis.call('HMGET', keys.base, 'c', 'state', 'paused', 'popped', 'largest')
  if not stored[1] then return nil end
  local q = {ident = ident, key = keys, paused = stored[3] == '1', version_0 = not stored[2]}
  q.version = q.version_0 and 0 or string.byte(stored[2]) - MARK
  q.older = q.version_0 or string.byte(stored[2]) ~= STATE_MARK
  unpack_promises(q, stored[1])
  unpack_state(q, stored[2] or redis.call('HGET', keys.base, 's'))
  q.sequence_before = q.sequence
  q.history = q.version_0 and '' or string.sub(current_state(stored[2]), STATE_SIZE + 1)
  q.largest = tonumber(stored[5])
  q.popped = stored[4] == '1' or q.dequeued > 0
  q.ordered, q.by_key = q.ordering > 0, q.ordering == 2
  -- Promises of older versions say nothing about the priority.
  q.priority = q.priority_plus_1 > 0 and q.priority_plus_1 - 1 or DEFAULT_PRIORITY
  q.running = redis.call('HLEN', keys.leases)
  q.running_before, q.depth_before = q.running, depth(q)
  local organization = string.byte(ident, 1)
  local project = string.byte(ident, 2 + organization)
  local environment = string.byte(ident, 3 + organization + project)
  q.environment = string.sub(ident, 1, 3 + organization + project + environment)
  q.environment_key = environment_keys(q.environment)
  q.heads_key = q.ordered and keys.heads or keys.ready
  return q
end
