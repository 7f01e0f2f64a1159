-- Every call of a queue that nobody asked lately reads all spans, so they are few.
local MOST_SPANS = 16
-- A log of spans (see `spans`) with one more span at its end; `open` says when the open span began (0: none is open). If
-- there are too many spans, the oldest is dropped, and the log is complete only from the end of that span on.
local function note_span(log, start, stop, open)
  local _, complete, kept = nil, 0, ''
  if log then
    _, complete = struct.unpack('>I8I8', log)
    kept = string.sub(log, 17)
  end
  if stop > start then
    kept = kept .. struct.pack('>I8I8', start, stop)
    if #kept > 16 * MOST_SPANS then
      _, complete = struct.unpack('>I8I8', kept)
      kept = string.sub(kept, 17)
    end
  end
  return struct.pack('>I8I8', open, complete) .. kept
end
