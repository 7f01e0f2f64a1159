-- enqueue: put messages in; each is accepted, known already, refused or gated. Its first write is HSET,
-- which a server that is out of memory refuses, so it changes everything or nothing.
-- ARGV  7 ident, 8 mode of entry (see `gate_watch`), 9 slot and 10 id of a named call, 11 the digest of its messages ('' if it is
--       not told), 12… for each message what the script reads (the id alone, or ARRIVAL, then key, idempotency key and
--       digest), the body, and its operation if it is put in for one
-- Reply {'ok', one letter per message (see `entry`), then the 16-byte ids of the first messages of all DUPLICATE and
--       KEY_REUSED, in order} | {'unknown'} | {'stale'} | {'late'} | {'other'} (see `named_call`)
--- include "call"
--- include "clock"
--- include "keys"
--- include "layout"
--- include "entry"
--- include "recorded"
--- include "record"
--- include "named_call"
--- include "remember_call"
--- include "load_queue"
--- include "depth"
--- include "advance"
--- include "gate_watch"
--- include "known_keys"
--- include "no_disk"
--- include "admit"
--- include "finish"
local ident, mode = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1]
local slot, call_id, content = ARGV[FIRST_ARGUMENT + 2], ARGV[FIRST_ARGUMENT + 3], ARGV[FIRST_ARGUMENT + 4]
local first, stride = FIRST_ARGUMENT + 5, mode == FOR_OPERATIONS and 3 or 2
local before = recorded()
if before == 'stale' then return {'stale'} end
if before then return {'ok', before} end
local ids = {}
for at = first, #ARGV, stride do
  local head = ARGV[at]
  ids[#ids + 1] = #head == 16 and head or string.sub(head, 1, 16)
end
if mode == NAMED_CALL then
  local known, originals, refusal = named_call(slot, call_id, content, #ids)
  if refusal then return {refusal} end
  -- A call that was settled before it arrived is void: it has no letters, and none of its messages enters.
  if known then return {'ok', known == '' and string.rep(GATED, #ids) or known .. originals} end
end
local q = load_queue(ident)
if not q then return {'unknown'} end
local now = clock()
local refusal = no_disk(now)
if refusal then return refusal end
advance(q, now)

-- Decide first, then write. Messages that queued operations will bring take room from every call but theirs.
local present = redis.call('HMGET', q.key.bodies, unpack(ids))
local gates = gate_watch(q, mode, now)
local waiting = depth(q) + (mode == FOR_OPERATIONS and 0 or q.reserved)
local room = q.max_depth > 0 and q.max_depth - waiting or math.huge
local span = q.ttl > 0 and math.min(q.ttl, q.max_age) or q.max_age
local sub, gated, gate_before, gate_after = string.sub, gates.closed, gates.before, gates.after
local letters, originals, named, refused, accepted = {}, {}, {}, 0, 0
local bodies, expiries, priorities, timed = {}, {}, {}, {}
local seen, forget_at, known, asked = {}, {}, known_keys(q, first, stride), 0
for i, id in ipairs(ids) do
  local at = first + stride * (i - 1)
  local head, operation = ARGV[at], stride == 3 and ARGV[at + 2]
  local priority, deliver_at, delay, ttl, window, key, idempotency, digest = q.priority, 0, 0, 0, 0, '', nil, nil
  if #head > 16 then
    local _, key_size, idempotency_size, rest
    _, priority, deliver_at, delay, ttl, window, key_size, idempotency_size, rest = struct.unpack(ARRIVAL, head)
    if priority == NO_PRIORITY then priority = q.priority end
    key = sub(head, rest, rest + key_size - 1)
    if idempotency_size > 0 then
      idempotency = sub(head, rest + key_size, rest + key_size + idempotency_size - 1)
      digest = sub(head, rest + key_size + idempotency_size)
    end
  end
  local answer
  if idempotency then
    asked = asked + 1
    answer = seen[idempotency] or known[asked]
  end
  if answer and struct.unpack('>I8', answer) <= now then answer = nil end
  local original = answer and sub(answer, 9, 24) or id
  local letter = gate_before and gate_before(key, operation)
  if not letter then
    if answer then
      letter = sub(answer, 25) == digest and DUPLICATE or KEY_REUSED
    elseif gated and gated(key) then
      letter = room < 1 and FULL or GATED
      if letter == FULL then refused = refused + 1 end
    elseif present[i] or named[id] then
      letter = DUPLICATE
    elseif room < 1 then
      letter, refused = FULL, refused + 1
    else
      letter, room, named[id], accepted = ACCEPTED, room - 1, true, accepted + 1
      bodies[2 * accepted - 1], bodies[2 * accepted] = id, ARGV[at + 1]
      if idempotency then
        local ends = now + (window > 0 and window < q.window and window or q.window)
        seen[idempotency], forget_at[idempotency] = struct.pack('>I8', ends) .. id .. digest, ends
      end
      local available = deliver_at > now and deliver_at or now + delay
      expiries[accepted] = available + (ttl > 0 and ttl < span and ttl or span)
      priorities[accepted] = priority
      if q.ordered or available ~= now then timed[accepted] = {available, q.by_key and key or ''} end
    end
    if gate_after then gate_after(key, operation, letter) end
  end
  if letter == DUPLICATE or letter == KEY_REUSED then originals[#originals + 1] = original end
  letters[i] = letter == STOPPED and FULL or letter
end

local counts = {}
admit(q, now, bodies, expiries, priorities, timed, seen, forget_at, counts)
tally(q, counts, 'refused', refused)
local moved = gates.save and gates.save()
local answer = table.concat(letters)
if mode == NAMED_CALL then
  remember_call(slot, call_id, answer, table.concat(originals), now, content)
end
if moved or accepted + refused > 0 then finish(q, 'enqueue', counts, {}, now) end
local reply = answer .. table.concat(originals)
record(reply)
return {'ok', reply}
