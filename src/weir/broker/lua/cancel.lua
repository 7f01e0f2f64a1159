-- cancel: remove waiting and leased messages for good. A lease is revoked: `revoked` remembers it until it would
-- have ended, so that its holder can be told. `kept` remembers each message as cancelled, for callers that wait for a result.
-- ARGV  7 ident, 8 ids, 16 bytes each, 9 how long `kept` remembers it in ms
-- Reply {'ok', a letter per id: d done, now or before, r done and its lease revoked, g gone, u not indexed yet; fewer letters than ids if
--       there were many, or many bytes of bodies to look at} | {'unknown'} | {'stale'}
--- include "call"
--- include "clock"
--- include "layout"
--- include "recorded"
--- include "record"
--- include "allow_draining"
--- include "load_queue"
--- include "advance"
--- include "open_lease"
--- include "member_of"
--- include "withdraw"
--- include "let_go"
--- include "drop_bodies"
--- include "release"
--- include "note_alarm"
--- include "end_life"
--- include "tally"
--- include "finish"
local ident, blob, keep_ms = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1], ARGV[FIRST_ARGUMENT + 2]
local MOST_CANCELLED, MOST_BYTES = 250, 8 * 1024 * 1024
local before = recorded()
if before == 'stale' then return {'stale'} end
if before then return {'ok', before} end
local q = load_queue(ident)
if not q then return {'unknown'} end
local now = clock()
allow_draining()
advance(q, now)
local letters, cancelled, leased, revoked, order_keys, heads, bytes = {}, {}, {}, {}, {}, {}, 0
local done = {}
-- A thousand at once held the server for 63 ms.
for at = 1, math.min(#blob, 16 * MOST_CANCELLED), 16 do
  local id = string.sub(blob, at, at + 15)
  local lease = not done[id] and redis.call('HGET', q.key.leases, id)
  local letter, known = 'g', false
  if lease then
    local deadline, token, consumer, member, handed_out, origin = open_lease(lease)
    leased[#leased + 1] = id
    order_keys[#order_keys + 1], heads[#heads + 1] = string.sub(member, struct.size(MEMBER) + 1), id
    local lapsed = deadline <= now
    end_life(q, now, {
      id = id, member = member, outcome = ENDED.cancelled, handed_out = handed_out, consumer = consumer, origin = origin,
      at = math.min(deadline, now), how = lapsed and ATTEMPT.lapsed or ATTEMPT.cancelled,
    })
    letter = 'd'
    if not lapsed then
      letter = 'r'
      revoked[#revoked + 1] = deadline
      revoked[#revoked + 1] = id .. token
      note_alarm(q, deadline)
    end
  elseif not done[id] then
    bytes = bytes + redis.call('HSTRLEN', q.key.bodies, id)
    if at > 1 and bytes > MOST_BYTES then break end
    local member, unindexed = member_of(q, id)
    local waited, headed = nil, false
    if member then waited, headed = withdraw(q, member) end
    if waited then
      letter = 'd'
      local _, _, _, _, _, _, _, rest = struct.unpack(MEMBER, member)
      if headed then order_keys[#order_keys + 1], heads[#heads + 1] = string.sub(member, rest), id end
      end_life(q, now, {id = id, member = member, outcome = ENDED.cancelled, where = waited})
    elseif unindexed then
      letter = 'u'
    elseif redis.call('GETRANGE', kept_key(q.environment, id), 0, #ident + 1) == 'c' .. ident then
      letter, known = 'd', true
    end
  end
  if (letter == 'd' or letter == 'r') and not known then
    done[id] = true
    cancelled[#cancelled + 1] = id
  end
  letters[#letters + 1] = letter
end
if #cancelled > 0 then
  for _, id in ipairs(cancelled) do redis.call('SET', kept_key(q.environment, id), 'c' .. ident, 'PX', keep_ms) end
  let_go(q, leased)
  if #revoked > 0 then redis.call('ZADD', q.key.revoked, unpack(revoked)) end
  drop_bodies(q, cancelled)
  release(q, order_keys, now, heads)
  local counts = {}
  tally(q, counts, 'cancelled', #cancelled)
  finish(q, 'cancel', counts, {}, now)
end
local reply = table.concat(letters)
record(reply)
return {'ok', reply}
