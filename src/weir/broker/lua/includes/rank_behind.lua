--- include "bytes_behind"
-- The rank of the first member of a sorted set behind `member` at `score`, whether `member` is still in the set or not.
local function rank_behind(key, score, member)
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. score)
  local high = low + redis.call('ZCOUNT', key, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if bytes_behind(redis.call('ZRANGE', key, middle, middle)[1], member) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end
