-- Time alone changes this queue at `at` the earliest; too early is harmless, too late never happens.
local function alarm(q, at)
  if not q.alarm or at < q.alarm then q.alarm = at end
end
