--- include "layout"
--- include "expire_member"
--- include "first_unlisted"
-- Expire waiting messages that are too old: the members that `expiry` lists, and the first others of each band of `ready`.
-- At most about `bound`, and fewer if many bytes die.
local function expire(q, now, counts, bound)
  local done, from = 0, 0
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', q.key.expiry, '-inf', now, 'LIMIT', 0, bound)) do
    if deaths.bytes >= deaths.most_bytes then break end
    expire_member(q, now, member, counts)
    done = done + 1
  end
  while done < bound and deaths.bytes < deaths.most_bytes do
    local member, score = first_unlisted(q, from)
    if not member then break end
    local _, _, _, _, _, expires = struct.unpack(MEMBER, member)
    if expires <= now then
      expire_member(q, now, member, counts)
      done = done + 1
    else
      from = (math.floor(tonumber(score) / BAND) + 1) * BAND
    end
  end
  return done
end
