--- include "call"
--- include "switched_off"
-- '1' if this call appends to the metric streams.
local function emits()
  return METRICS_ON == '1' and not switched_off() and '1' or '0'
end
