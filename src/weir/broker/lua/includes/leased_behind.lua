--- include "bytes_behind"
-- The ids of leased messages behind `cursor` ('' for all), in their order, at most `bound`. Their order is that of the ids,
-- because the end of a lease moves with every extension.
local function leased_behind(keys, cursor, bound)
  local found = {}
  for _, id in ipairs(redis.call('HKEYS', keys.leases)) do
    if bytes_behind(id, cursor) and (#found < bound or bytes_behind(found[#found], id)) then
      local low, high = 1, #found + 1
      while low < high do
        local middle = math.floor((low + high) / 2)
        if bytes_behind(found[middle], id) then high = middle else low = middle + 1 end
      end
      table.insert(found, low, id)
      found[bound + 1] = nil
    end
  end
  return found
end
