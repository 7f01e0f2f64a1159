--- include "keys"
--- include "gate_state"
--- include "entry"
-- Whether messages may enter now, for one enqueue call.
--   OBEY_GATES      gated while the gate of their partition is closed
--   NAMED_CALL      a producer's direct call: gated also once the direct allowance lapsed
--   PASS_GATES      through every gate
--   FOR_OPERATIONS  for queued operations: messages that an operation put in before are not put in again
-- `closed` says whether a partition is gated. `before` answers a letter that settles an operation's message, or
-- nil; `after` is told what became of it. Each function is absent where there is nothing to watch.
-- `before` answers STOPPED for the messages of an operation behind its first FULL one. The caller is told FULL for
-- them, but they are not counted as refused: the operation brings them when it is tried again.
local STOPPED = 's'
local function gate_watch(q, mode, now)
  local keys = q.key
  if mode == PASS_GATES then return {} end
  if mode ~= FOR_OPERATIONS then
    local until_ms = mode == NAMED_CALL and redis.call('GET', shard_key.direct)
    local lapsed = until_ms and tonumber(until_ms) < now
    local some = redis.call('EXISTS', keys.gates) == 1
    if not (lapsed or some) then return {} end
    local function closed(partition)
      return lapsed or (some and redis.call('HEXISTS', keys.gates, partition) == 1)
    end
    return {closed = closed}
  end
  local named, held, stopped, changed = {}, {}, {}, {}
  local function before(partition, operation)
    local gate = gate_key(keys, partition)
    local place = struct.pack('>I2', #operation) .. operation .. gate
    if held[place] == nil then
      local put, total = gate_state(gate, operation)
      held[place] = {put = put or -1, total = total or 0}
    end
    named[operation] = (named[operation] or 0) + 1
    if held[place].put < 0 then return GATED end
    if named[operation] <= held[place].put then return DUPLICATE end
    if stopped[operation] then return STOPPED end
  end
  local function after(partition, operation, letter)
    if letter == FULL then
      stopped[operation] = true
    else
      local gate = gate_key(keys, partition)
      local state = held[struct.pack('>I2', #operation) .. operation .. gate]
      -- The message came, so it is not reserved any more.
      if named[operation] <= state.total then q.reserved = q.reserved - 1 end
      state.put = named[operation]
      changed[#changed + 1] = {gate, operation, state.put .. '/' .. state.total}
    end
  end
  local function save()
    for _, change in ipairs(changed) do redis.call('HSET', unpack(change)) end
    return #changed > 0
  end
  return {before = before, after = after, save = save}
end
