--- include "shard_switch"
-- The refusal of messages while the disk of Redis has too little room for them; nil if it has enough, or if nobody who sees the
-- disk has said anything for a while. What takes messages out never asks.
local function no_disk(now)
  local until_ms, text = string.match(shard_switch()[2] or '', '^(%d+) (.*)$')
  if until_ms and tonumber(until_ms) > now then return redis.error_reply('NODISK ' .. text) end
end
