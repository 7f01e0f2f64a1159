--- include "keys"
--- include "layout"
--- include "settled"
-- How a lease that is not held any more was settled, as far as it is remembered; nil if it lapsed, or is not known.
local function how_settled(now, token, id)
  for _, key in ipairs({shard_key.settled, shard_key.settled_before}) do
    local entries, at = redis.call('HGET', key, token) or '', 1
    while at <= #entries do
      local how, since, count, start = struct.unpack(SETTLED, entries, at)
      at = start + 16 * count
      local found = string.find(entries, id, start, true)
      while found and found < at and (found - start) % 16 ~= 0 do
        found = string.find(entries, id, found + 1, true)
      end
      if found and found < at then return since + SETTLED_MS > now and how or nil end
    end
  end
end
