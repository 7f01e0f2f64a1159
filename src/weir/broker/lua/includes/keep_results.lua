--- include "keys"
-- Keep the results of messages that are done: `results` holds for each the number of its lease, its length and its bytes.
local function keep_results(q, leases, ids, results, keep_ms)
  local at = 1
  while at <= #results do
    local number, length = struct.unpack('>HI4', results, at)
    if leases[number] then
      local result = string.sub(results, at + 6, at + 5 + length)
      redis.call('SET', kept_key(q.environment, ids[number]), 'r' .. result, 'PX', keep_ms)
    end
    at = at + 6 + length
  end
end
