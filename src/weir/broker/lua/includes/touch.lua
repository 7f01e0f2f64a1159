--- include "call"
--- include "clock"
--- include "layout"
--- include "keys"
--- include "recorded"
--- include "record"
--- include "load_queue"
--- include "advance"
--- include "member_of"
--- include "wait_until"
--- include "free_wait"
--- include "note_wait"
--- include "withdraw"
--- include "pack_place"
--- include "place"
--- include "postpone"
--- include "finish"
-- Moving 1,000 messages in one script took 21 ms at best.
local MOST_TOUCHED, MOST_TOUCHED_BYTES = 500, 8 * 1024 * 1024
-- The common part of run_now, reschedule and change_priority: find each waiting message by the ids in the arguments, take it
-- out of line, and put it where `move` says. `move` gets the queue, the message as a table, the time now and where it waits
-- ('ready', 'blocked' or 'delayed'); it changes the table, or answers the letter for a message that stays. Answers the reply
-- of the script.
local function touch(operation, move)
  local before = recorded()
  if before == 'stale' then return {'stale'} end
  if before then return {'ok', before} end
  local q, blob = load_queue(ARGV[FIRST_ARGUMENT]), ARGV[FIRST_ARGUMENT + 1]
  if not q then return {'unknown'} end
  local now, letters, moved, bytes = clock(), {}, false, 0
  advance(q, now)
  local function step(id)
    if redis.call('HEXISTS', q.key.leases, id) == 1 then return 'l' end
    local member, unindexed = member_of(q, id)
    if unindexed then return 'u' end
    if not member then return 'g' end
    local m, _, rest = {}, nil, nil
    m.sequence, _, m.attempts, m.enqueued, m.available, m.expires, m.priority, rest = struct.unpack(MEMBER, member)
    local order_key, where = string.sub(member, rest), 'delayed'
    if redis.call('ZSCORE', q.key.ready, member) then
      where = redis.call('ZSCORE', q.heads_key, member) and 'ready' or 'blocked'
    end
    local stays = move(q, m, now, where)
    if stays then return stays end
    local w = wait_until(q, id, member, where, now)
    if not withdraw(q, member) then return 'g' end
    local returning, stands = q.ordered and m.sequence > 0, nil
    if m.available > now then
      stands = pack_place(q, m.sequence, m.attempts, m.enqueued, m.available, m.expires, m.priority)
      postpone(q, id, stands, m.attempts, m.available, m.expires, order_key)
    else
      local sequence = returning and m.sequence or nil
      stands = pack_place(q, sequence, m.attempts, m.enqueued, m.available, m.expires, m.priority)
      local blocked = place(q, id, stands, m.available, m.expires, m.priority, order_key, returning)
      if not blocked then free_wait(q, w, now) end
    end
    redis.call('HSET', q.key.places, id, note_wait(stands, order_key, w))
    moved = true
    return 'd'
  end
  for at = 1, #blob, 16 do
    local id = string.sub(blob, at, at + 15)
    bytes = bytes + redis.call('HSTRLEN', q.key.bodies, id)
    if #letters == MOST_TOUCHED or (at > 1 and bytes > MOST_TOUCHED_BYTES) then break end
    letters[#letters + 1] = step(id)
  end
  if moved then
    -- Consumers that wait until the next message is due look again.
    redis.call('PUBLISH', shard_key.wake, q.ident)
    finish(q, operation, {}, {}, now, true)
  end
  local reply = table.concat(letters)
  record(reply)
  return {'ok', reply}
end
