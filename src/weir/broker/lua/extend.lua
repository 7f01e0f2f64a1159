-- extend: keep leases for longer, counted from now.
-- ARGV  7 lease in ms, 8… for each queue its ident and the leases, each id (16) and token (16)
-- Reply {'ok', one letter per lease: d done, l lapsed, c cancelled} | {'stale'}
--- include "call"
--- include "clock"
--- include "recorded"
--- include "record"
--- include "allow_draining"
--- include "load_queue"
--- include "held"
--- include "was_revoked"
--- include "note_alarm"
--- include "finish"
local before = recorded()
if before == 'stale' then return {'stale'} end
if before then return {'ok', before} end
local now = clock()
local deadline = now + tonumber(ARGV[FIRST_ARGUMENT])
allow_draining()
local answers = {}
for at = FIRST_ARGUMENT + 1, #ARGV, 2 do
  local q, items = load_queue(ARGV[at]), ARGV[at + 1]
  if not q then
    answers[#answers + 1] = string.rep('l', #items / 32)
  else
    local leases, ids = held(q, now, items, 32, true)
    local letters, some = {}, false
    for i, lease in ipairs(leases) do
      if lease then
        local kept = string.sub(lease, 1, 2) .. struct.pack('>I6', deadline) .. string.sub(lease, 9)
        redis.call('HSET', q.key.leases, ids[i], kept)
        redis.call('ZADD', q.key.deadlines, deadline, ids[i])
        some = true
      end
      letters[i] = lease and 'd' or 'l'
      local named = string.sub(items, 32 * i - 31, 32 * i)
      if not lease and was_revoked(q.key, named, now) then letters[i] = 'c' end
    end
    if some then
      note_alarm(q, deadline)
      finish(q, 'extend', {}, {}, now, true)
    end
    answers[#answers + 1] = table.concat(letters)
  end
end
local reply = table.concat(answers)
record(reply)
return {'ok', reply}
