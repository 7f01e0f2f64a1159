-- close_gates: from now on enqueue into these partitions answers gated, until each operation that closed a gate
-- opened it. The messages of an operation count as waiting from now on, until it put them in or opened its gate.
-- ARGV  7 ident, 8 '1' to grant no more messages than the queue has room for, 9… for each gate its
--       partition ('' for messages without a key), the operation and how many messages it will bring
-- Reply {'ok', for each gate how many messages may come, 4 bytes, all bits set if the operation is void}
--       | {'unknown'} | {'stale'}; an operation that is void, or that wants to bring some messages and may bring
--       none, does not close its gate
--- include "call"
--- include "clock"
--- include "keys"
--- include "void_grant"
--- include "recorded"
--- include "record"
--- include "load_queue"
--- include "depth"
--- include "gate_state"
--- include "gate_time"
--- include "tally"
--- include "finish"
local ident, within_room = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1] == '1'
local before = recorded()
if before == 'stale' then return {'stale'} end
if before then return {'ok', before} end
local q = load_queue(ident)
if not q then return {'unknown'} end
local now = clock()
local room = within_room and q.max_depth > 0 and q.max_depth - depth(q) - q.reserved or math.huge
local answers, refused, closed = {}, 0, 0
for at = FIRST_ARGUMENT + 2, #ARGV, 3 do
  local partition, operation, wanted = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local gate = gate_key(q.key, partition)
  local _, granted = gate_state(gate, operation)
  if redis.call('ZSCORE', shard_key.voided, operation) then
    granted = VOID_GRANT
  elseif not granted then
    granted = math.max(0, math.min(wanted, room))
    refused = refused + wanted - granted
    if granted > 0 or wanted == 0 then
      redis.call('HSET', gate, operation, '0/' .. granted)
      redis.call('HSET', q.key.gates, partition, '1')
      redis.call('ZADD', shard_key.gate_times, now, gate_time(ident, partition, operation))
      q.reserved, room, closed = q.reserved + granted, room - granted, closed + 1
    end
  end
  answers[#answers + 1] = struct.pack('>I4', granted)
end
local counts = {}
tally(q, counts, 'refused', refused)
if refused + closed > 0 then finish(q, 'enqueue', counts, {}, now) end
local reply = table.concat(answers)
record(reply)
return {'ok', reply}
