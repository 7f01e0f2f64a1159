--- include "call"
--- include "keys"
--- include "layout"
-- A queue as a table: its promises, odometers and keys; nil if it is not defined. `save_queue` writes
-- it back. Waiting messages are never counted: depth follows from the odometers and what is running.
local function load_queue(ident)
  local keys = queue_keys(ident)
  local stored = redis.call('HMGET', keys.base, 'c', 's', 'paused')
  if not stored[1] then return nil end
  local q = {ident = ident, key = keys, paused = stored[3] == '1'}
  local ordering
  ordering, q.max_age, q.ttl, q.max_depth, q.max_attempts, q.initial, q.cap, q.jitter, q.lease,
    q.concurrency, q.window = struct.unpack(PROMISES, stored[1])
  q.ordered, q.by_key = ordering > 0, ordering == 2
  q.enqueued, q.dequeued, q.acked, q.nacked, q.dead, q.expired, q.lapsed, q.refused, q.sequence,
    q.top_available, q.top_expires, q.alarm_set, q.touched = struct.unpack(STATE, stored[2])
  q.running = redis.call('HLEN', keys.leases)
  q.running_before, q.depth_before = q.running, q.enqueued - q.acked - q.dead - q.expired - q.running
  local organization = string.byte(ident, 1)
  local project = string.byte(ident, 2 + organization)
  local environment = string.byte(ident, 3 + organization + project)
  q.environment = string.sub(ident, 1, 3 + organization + project + environment)
  q.environment_key = environment_keys(q.environment)
  q.heads_key = q.ordered and keys.heads or keys.ready
  return q
end
