-- Note that time alone may change this queue at `at`. An alarm may be too early, but never too late.
local function note_alarm(q, at)
  if not q.alarm or at < q.alarm then q.alarm = at end
end
