-- ack: done; remove the messages for good, and keep their results if they have any.
-- ARGV  7 how long a result is kept in ms, 8… for each queue its ident, the leases, each id (16 bytes) and token (16 bytes),
--       the times of their handlers plus 1 (4 bytes each, 0: not told; '' if none is told), and the results, each the number of
--       its lease (2 bytes), its length (4 bytes) and its bytes
-- Reply {'ok', one letter per lease: d done, D done a while ago, l lapsed} | {'stale'}
--- include "call"
--- include "clock"
--- include "layout"
--- include "recorded"
--- include "record"
--- include "allow_draining"
--- include "load_queue"
--- include "advance"
--- include "held"
--- include "how_settled"
--- include "note_settled"
--- include "open_lease"
--- include "let_go"
--- include "drop_bodies"
--- include "release"
--- include "end_acked"
--- include "tally"
--- include "finish"
--- include "keep_results"
local before = recorded()
if before == 'stale' then return {'stale'} end
if before then return {'ok', before} end
local now = clock()
allow_draining()
local answers, MEMBER_SIZE = {}, struct.size(MEMBER)
for at = FIRST_ARGUMENT + 1, #ARGV, 4 do
  local q, items, told = load_queue(ARGV[at]), ARGV[at + 1], ARGV[at + 2]
  if not q then
    answers[#answers + 1] = string.rep('l', #items / 32)
  else
    advance(q, now)
    local leases, ids, tokens = held(q, now, items, 32)
    local done, letters, order_keys, ending, handlers, named = {}, {}, {}, {}, {}, {}
    for i, lease in ipairs(leases) do
      if lease then
        done[#done + 1], ending[#done + 1], named[#done + 1] = ids[i], lease, tokens[i]
        if told ~= '' then
          local handler = struct.unpack('>I4', told, 4 * i - 3)
          handlers[#done] = handler > 0 and handler or nil
        end
        if q.ordered then
          local _, _, _, member = open_lease(lease)
          order_keys[#order_keys + 1] = string.sub(member, MEMBER_SIZE + 1)
        end
      end
      letters[i] = lease and 'd' or how_settled(now, tokens[i], ids[i]) == ACKED and 'D' or 'l'
    end
    if #done > 0 then
      end_acked(q, now, done, ending, order_keys, handlers)
      keep_results(q, leases, ids, ARGV[at + 3], ARGV[FIRST_ARGUMENT])
      let_go(q, done)
      drop_bodies(q, done)
      release(q, order_keys, now, done)
      local counts = {}
      note_settled(now, ACKED, named, done)
      tally(q, counts, 'acked', #done)
      finish(q, 'ack', counts, {}, now)
    end
    answers[#answers + 1] = table.concat(letters)
  end
end
local reply = table.concat(answers)
record(reply)
return {'ok', reply}
