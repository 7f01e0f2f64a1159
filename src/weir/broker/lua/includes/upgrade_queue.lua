--- include "release"
-- What changes in a queue of version 0 when it is first written back. Without `s` a program that knows no
-- versions fails on it instead of misreading it.
local function upgrade_queue(q)
  redis.call('HDEL', q.key.base, 's')
  if q.by_key then release(q, '') end
  q.version_0 = false
end
