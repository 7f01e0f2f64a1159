-- reschedule: let waiting messages wait until another time. A message that has to wait longer also expires later, by as
-- much. The head of an ordering key stays its head, so the others of its key wait with it. A message behind a head keeps
-- its place.
-- ARGV  7 ident, 8 ids, 16 bytes each, 9 until when in ms (0: see 10), 10 for how long from now in ms
-- Reply {'ok', a letter per id: d done, l leased, b behind a head, g gone, u not indexed yet; fewer letters
--       than ids if they were many} | {'unknown'} | {'stale'}
--- include "call"
--- include "touch"
local at, delay = tonumber(ARGV[FIRST_ARGUMENT + 2]), tonumber(ARGV[FIRST_ARGUMENT + 3])
return touch('reschedule', function(_, message, now, where)
  if where == 'blocked' then return 'b' end
  local due = at > 0 and at or now + delay
  if due <= now and where == 'ready' then return 'd' end
  due = math.max(due, now)
  message.expires = message.expires + math.max(0, due - math.max(now, message.available))
  message.available = due
end)
