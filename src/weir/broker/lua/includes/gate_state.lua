-- How many messages an operation put in through this gate, and how many it was to bring; nothing if it is not
-- on the gate. Older programs noted only how many were put in.
local function gate_state(gate, operation)
  local noted = redis.call('HGET', gate, operation)
  if not noted then return nil, nil end
  local put, total = string.match(noted, '^(%d+)/?(%d*)$')
  return tonumber(put), tonumber(total) or tonumber(put)
end
