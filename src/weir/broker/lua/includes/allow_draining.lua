--- include "call"
-- Redis checks its memory limit at a script's first write and not after it. DEL is always allowed, so
-- scripts that free memory begin with one, and a full server can still be drained.
local function allow_draining()
  redis.call('DEL', SLOT_KEY)
end
