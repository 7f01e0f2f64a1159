-- The clock that runs while a queue is in this status; nil for 't' (in turn). Not a table, because every call would build it.
local function clock_of(status)
  return status == 'p' and 'paused_ms' or status == 'q' and 'queue_limit_ms' or status == 'e' and 'environment_limit_ms'
    or status == 'u' and 'unasked_ms' or status == 'n' and 'unknown_ms' or nil
end
