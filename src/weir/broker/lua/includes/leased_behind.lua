--- include "bytes_behind"
-- The ids of leased messages behind `cursor` ('' for all), in their order, at most `bound`. Their order is that of the ids,
-- because the end of a lease moves with every extension. Most ids are told apart by two numbers; that is four times as
-- fast as byte by byte.
local function leased_behind(keys, cursor, bound)
  local found, unpack_numbers = {}, struct.unpack
  local low_1, low_2, high_1, high_2 = -1, -1, math.huge, math.huge
  if cursor ~= '' then low_1, low_2 = unpack_numbers('>I6I6', cursor) end
  for _, id in ipairs(redis.call('HKEYS', keys.leases)) do
    local first, second = unpack_numbers('>I6I6', id)
    if (first > low_1 or (first == low_1 and second >= low_2))
      and (first < high_1 or (first == high_1 and second <= high_2))
      and bytes_behind(id, cursor) and (#found < bound or bytes_behind(found[bound], id)) then
      local from, to = 1, #found + 1
      while from < to do
        local middle = math.floor((from + to) / 2)
        if bytes_behind(found[middle], id) then to = middle else from = middle + 1 end
      end
      table.insert(found, from, id)
      found[bound + 1] = nil
      if #found == bound then high_1, high_2 = unpack_numbers('>I6I6', found[bound]) end
    end
  end
  return found
end
