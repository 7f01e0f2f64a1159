--- include "keys"
-- Whether messages may enter now, for one enqueue call.
--   mode '0': gated while their partition's gate is closed
--   mode '3': a producer's direct call: also gated once direct entry lapsed
--   mode '1': through every gate
--   mode '2': on behalf of operations, each once: what an operation put in before is not put in again
-- `before` answers a letter that settles the message, or nil; `after` hears what became of it;
-- either is absent where there is nothing to watch.
local function gate_watch(keys, mode, now)
  if mode == '1' then
    return {}
  end
  if mode == '0' or mode == '3' then
    local until_ms = mode == '3' and redis.call('GET', shard_key.direct)
    local lapsed = until_ms and tonumber(until_ms) < now
    local closed = redis.call('EXISTS', keys.gates) == 1
    if not (lapsed or closed) then return {} end
    local function before(partition)
      if lapsed or (closed and redis.call('HEXISTS', keys.gates, partition) == 1) then return 'g' end
    end
    return {before = before}
  end
  local named, held, stopped, changed = {}, {}, {}, {}
  local function before(partition, operation)
    local gate = gate_key(keys, partition)
    local place = struct.pack('>I2', #operation) .. operation .. gate
    if held[place] == nil then held[place] = tonumber(redis.call('HGET', gate, operation) or -1) end
    named[operation] = (named[operation] or 0) + 1
    if held[place] < 0 then return 'g' end
    if named[operation] <= held[place] then return 'd' end
    if stopped[operation] then return 's' end
  end
  local function after(partition, operation, letter)
    if letter == 'f' then
      stopped[operation] = true
    else
      local gate = gate_key(keys, partition)
      held[struct.pack('>I2', #operation) .. operation .. gate] = named[operation]
      changed[#changed + 1] = {gate, operation, named[operation]}
    end
  end
  local function save()
    for _, change in ipairs(changed) do redis.call('HSET', unpack(change)) end
  end
  return {before = before, after = after, save = save}
end
