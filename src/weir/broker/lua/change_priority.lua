-- change_priority: let waiting messages of an unordered queue be served earlier or later than others.
-- ARGV  7 ident, 8 ids, 16 bytes each, 9 priority
-- Reply {'ok', a letter per id: d done, o the queue is ordered, l leased, g gone, u not indexed yet; fewer letters
--       than ids if they were many} | {'unknown'} | {'stale'}
--- include "call"
--- include "touch"
local priority = tonumber(ARGV[FIRST_ARGUMENT + 2])
return touch('change_priority', function(q, message)
  if q.ordered then return 'o' end
  if message.priority == priority then return 'd' end
  message.priority = priority
end)
