-- enqueue_one: put one plain message into an unordered queue in a named call, as `enqueue` does, at less cost. If
-- anything is unusual, it changes nothing, and the caller has to use `enqueue`. Its first write is HSETNX, which a
-- server that is out of memory refuses, so it changes everything or nothing.
-- ARGV  7 ident, 8 slot and 9 id of the named call, 10 id of the message, 11 its body
-- Reply {'ok', the letter that `enqueue` answers} | {'unusual'} if `enqueue` has to do it
--- include "call"
--- include "clock"
--- include "keys"
--- include "layout"
--- include "entry"
--- include "named_call"
--- include "remember_call"
--- include "load_queue"
--- include "depth"
--- include "environment_totals"
--- include "advance"
--- include "no_disk"
--- include "readings"
--- include "note_alarm"
--- include "note_largest"
--- include "set_alarm"
--- include "note_touched"
--- include "refresh"
--- include "emit"
local ident, slot, call_id = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1], ARGV[FIRST_ARGUMENT + 2]
local id, body = ARGV[FIRST_ARGUMENT + 3], ARGV[FIRST_ARGUMENT + 4]
local UNUSUAL = {'unusual'}
if #body > MAX_BODY then error('TOOLONG body') end

local known, _, refusal = named_call(slot, call_id, '')
if known or refusal then return UNUSUAL end
local q = load_queue(ident)
if not q or q.older or q.ordered or q.paused then return UNUSUAL end
if q.concurrency > 0 and q.running >= q.concurrency then return UNUSUAL end
local totals = environment_totals(q)
if totals[1] or totals[4] then return UNUSUAL end
local now, allowed_until = clock(), redis.call('GET', shard_key.direct)
if allowed_until and tonumber(allowed_until) < now then return UNUSUAL end
if redis.call('EXISTS', q.key.gates) == 1 or no_disk(now) then return UNUSUAL end
if q.max_depth > 0 and depth(q) + q.reserved >= q.max_depth then return UNUSUAL end

advance(q, now)
if q.depth_before + q.running_before == 0 then q.top_available, q.top_expires = 0, 0 end
local expires = now + (q.ttl > 0 and math.min(q.ttl, q.max_age) or q.max_age)
local place = struct.pack(PLACE, q.sequence + 1, 0, now, now, expires, q.priority)
if redis.call('HSETNX', q.key.bodies, id, body .. place .. readings(q)) == 0 then return UNUSUAL end
note_largest(q, #body)
local member = string.sub(place, 1, 8) .. id .. string.sub(place, 9)
redis.call('ZADD', q.key.ready, (9 - q.priority) * BAND + now, member)
if now >= q.top_available and expires >= q.top_expires then
  q.top_available, q.top_expires = now, expires
else
  redis.call('ZADD', q.key.expiry, expires, member)
  q.top_expires = math.max(q.top_expires, expires)
end
q.sequence, q.enqueued = q.sequence + 1, q.enqueued + 1
note_alarm(q, expires)
set_alarm(q)
note_touched(q, now)
redis.call('HSET', q.key.base, 'state', pack_state(q) .. q.history)
q.environment_limit, q.environment_running = 0, tonumber(totals[3] or 0)
q.environment_depth = redis.call('HINCRBY', q.environment_key.base, 'depth', 1)
-- The queue holds a message now, so it is servable. If it is listed already there is nothing to do.
if not redis.call('ZSCORE', q.environment_key.active, q.ident) then refresh(q, 0, q.environment_running) end
remember_call(slot, call_id, ACCEPTED, '', now, '')
emit(q, 'enqueue', {enqueued = 1}, {}, now)
return {'ok', ACCEPTED}
