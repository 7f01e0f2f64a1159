--- include "layout"
--- include "expire_member"
-- Expire waiting messages that are too old: the members that `expiry` lists, and the front of each band of
-- `ready`. At most about `bound`.
local function expire(q, now, counts, bound)
  local due = redis.call('ZRANGEBYSCORE', q.key.expiry, '-inf', now, 'LIMIT', 0, bound)
  for _, member in ipairs(due) do expire_member(q, now, member, counts) end
  local done, from = #due, 0
  while done < bound and from <= 9 * BAND do
    local front = redis.call('ZRANGEBYSCORE', q.key.ready, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not front[1] then break end
    local _, _, _, _, _, expires = struct.unpack(MEMBER, front[1])
    if expires <= now then
      expire_member(q, now, front[1], counts)
      done = done + 1
    else
      from = (math.floor(tonumber(front[2]) / BAND) + 1) * BAND
    end
  end
  return done
end
