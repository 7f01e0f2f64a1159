--- include "keys"
--- include "gate_state"
-- Whether messages may enter now, for one enqueue call.
--   mode '0': gated while their partition's gate is closed
--   mode '3': a producer's direct call: also gated once direct entry lapsed
--   mode '1': through every gate
--   mode '2': on behalf of operations, each once: what an operation put in before is not put in again
-- `closed` says whether a partition is gated. `before` answers a letter that settles an operation's message, or
-- nil; `after` hears what became of it. Each is absent where there is nothing to watch.
local function gate_watch(q, mode, now)
  local keys = q.key
  if mode == '1' then
    return {}
  end
  if mode == '0' or mode == '3' then
    local until_ms = mode == '3' and redis.call('GET', shard_key.direct)
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
    if held[place].put < 0 then return 'g' end
    if named[operation] <= held[place].put then return 'd' end
    if stopped[operation] then return 's' end
  end
  local function after(partition, operation, letter)
    if letter == 'f' then
      stopped[operation] = true
    else
      local gate = gate_key(keys, partition)
      local state = held[struct.pack('>I2', #operation) .. operation .. gate]
      -- It came, so it is no longer one of those that are announced.
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
