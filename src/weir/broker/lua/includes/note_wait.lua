--- include "layout"
-- A place as `places` notes it: with its wait so far. Its first byte, which is 0 in a place, says that the wait follows.
local function note_wait(place, w)
  local size = struct.size(PLACE)
  local flags = (w.frees and 1 or 0) + (w.starts and 2 or 0)
  return '\1' .. string.sub(place, 2, size)
    .. struct.pack(WAIT, flags, w.since, w.scheduled, w.backoff, w.blocked, w.leased, w.p, w.q, w.e, w.u,
      w.n + UNKNOWN_BIAS)
    .. string.sub(place, size + 1)
end
