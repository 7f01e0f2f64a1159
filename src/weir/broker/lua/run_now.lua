-- run_now: let messages that wait for their time or a retry be available now. Available messages stay where they are.
-- ARGV  7 ident, 8 ids, 16 bytes each
-- Reply {'ok', a letter per id: d done, l leased, g gone, u not indexed yet; fewer letters
--       than ids if they were many} | {'unknown'} | {'stale'}
--- include "touch"
return touch('run_now', function(_, message, now, where)
  if where ~= 'delayed' then return 'd' end
  message.available = now
end)
