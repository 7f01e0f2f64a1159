-- The time from one moment to another, divided by a log of spans: {from, to, 'in', 'out' or 'unknown'} each, in order.
-- A log holds when the open span began (0: none is open), from when on the log is complete, and the last spans.
local function spans(log, from, to)
  local parts = {}
  local function cut(stop, where)
    stop = math.min(stop, to)
    if stop > from then
      parts[#parts + 1] = {from, stop, where}
      from = stop
    end
  end
  local open, complete = struct.unpack('>I8I8', log)
  cut(complete, 'unknown')
  for at = 17, #log, 16 do
    local start, stop = struct.unpack('>I8I8', log, at)
    cut(start, 'out')
    cut(stop, 'in')
  end
  if open > 0 then
    cut(open, 'out')
    cut(to, 'in')
  end
  cut(to, 'out')
  return parts
end
