--- include "layout"
-- A place as `places` notes it: with its wait so far, and its attempts. Its first byte, which is 0 in a place, says that
-- the wait follows.
local function note_wait(stands, order_key, w)
  local flags = (w.frees and 1 or 0) + (w.starts and 2 or 0) + (w.log and 4 or 0)
  return '\1' .. string.sub(stands, 2)
    .. struct.pack(WAIT, flags, w.since, w.scheduled, w.backoff, w.blocked, w.leased, w.p, w.q, w.e, w.u,
      w.n + UNKNOWN_BIAS)
    .. (w.log and struct.pack('>I2', #w.log) .. w.log or '') .. order_key
end
