-- list_messages: a page of the messages of a queue that are in one state. Reads only.
-- A cursor is the place of the last message that was looked at, so a message that stays in its state while others come and
-- go is shown once.
-- ARGV  7 ident, 8 state, 9 cursor ('' to begin; for leased ones the ids to look at, 16 bytes each), 10 how many at most,
--       11 how many bytes of each payload and error, 12 key, 13 text in the headers, 14 text in the payload ('' for any)
-- Reply {'ok', cursor ('' at the end), how many were looked at, then for each message its member, the end of its lease and
--       its holder ('' if it is not leased), the front of its body, the size of its payload and its last error}
--       | {'unknown'}
--- include "call"
--- include "keys"
--- include "layout"
--- include "load_queue"
--- include "rank_behind"
--- include "body_parts"
--- include "held_by"
local ident, state, cursor = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1], ARGV[FIRST_ARGUMENT + 2]
local limit, shown = tonumber(ARGV[FIRST_ARGUMENT + 3]), tonumber(ARGV[FIRST_ARGUMENT + 4])
local key, header, text = ARGV[FIRST_ARGUMENT + 5], ARGV[FIRST_ARGUMENT + 6], ARGV[FIRST_ARGUMENT + 7]
-- Bounds of one call, which keep it far below 50 ms on a busy machine too: members passed over, bodies read, their bytes.
local MOST_PASSED, MOST_READ, MOST_BYTES = 2000, 250, 512 * 1024
local q = load_queue(ident)
if not q then return {'unknown'} end
local reply, passed, read, bytes, rows = {'ok', cursor, 0}, 0, 0, 0, 0

local function is_wanted(body, headers_at, payload_at, last)
  if key ~= '' and string.sub(body, 7, 6 + string.byte(body)) ~= key then return false end
  if header ~= '' and not string.find(string.sub(body, headers_at, payload_at - 1), header, 1, true) then
    return false
  end
  if text == '' then return true end
  local _, stop = string.find(body, text, payload_at, true)
  return stop and stop <= last
end

-- Look at one message. False if the call has done enough: the next call looks at it.
local function look(member, lease, position)
  if rows == limit or passed == MOST_PASSED or read == MOST_READ then return false end
  local _, id, attempts = struct.unpack('>I8c16I4', member)
  if (state == 'scheduled' and attempts > 0) or (state == 'retrying' and attempts == 0) then
    passed, reply[2] = passed + 1, position
    return true
  end
  local size = redis.call('HSTRLEN', q.key.bodies, id)
  if read > 0 and bytes + size > MOST_BYTES then return false end
  passed, read, bytes, reply[2] = passed + 1, read + 1, bytes + size, position
  local body = redis.call('HGET', q.key.bodies, id) or string.rep('\0', 6)
  local headers_at, payload_at, last = body_parts(body)
  if is_wanted(body, headers_at, payload_at, last) then
    rows = rows + 1
    local error = redis.call('HGET', q.key.errors, id) or ''
    for _, part in ipairs({
      member, lease, string.sub(body, 1, math.min(last, payload_at + shown - 1)), last - payload_at + 1,
      string.sub(error, 1, shown),
    }) do reply[#reply + 1] = part end
  end
  return true
end

local function look_at_leases()
  for at = 1, #cursor, 16 do
    local id = string.sub(cursor, at, at + 15)
    local lease = redis.call('HGET', q.key.leases, id)
    if lease then
      local holder, member = held_by(lease)
      if not look(member, holder, id) then return end
    end
  end
  reply[2] = ''
end

-- `lanes` is in the order of keys, or in the order of arrival if the whole queue has one order.
local function look_at_blocked()
  local start = q.by_key and key ~= '' and struct.pack('>I2', #key) .. key or ''
  local from, to = '[' .. start, start == '' and '+' or '(' .. start .. '\255'
  if cursor ~= '' then from = '(' .. cursor elseif start == '' then from = '-' end
  while true do
    local entries = redis.call('ZRANGEBYLEX', q.key.lanes, from, to, 'LIMIT', 0, 200)
    for _, entry in ipairs(entries) do
      local size = struct.unpack('>I2', entry)
      if not look(string.sub(entry, 3 + size), '', entry) then return end
      from = '(' .. entry
    end
    if #entries < 200 then break end
  end
  reply[2] = ''
end

local function look_at_members(set)
  local rank = 0
  if cursor ~= '' then
    local score, member = string.match(cursor, '^(%S+) (.*)$')
    rank = rank_behind(set, score, member)
  end
  while true do
    local found = redis.call('ZRANGE', set, rank, rank + 199, 'WITHSCORES')
    for i = 1, #found, 2 do
      if not look(found[i], '', found[i + 1] .. ' ' .. found[i]) then return end
    end
    rank = rank + 200
    if #found < 400 then break end
  end
  reply[2] = ''
end

if state == 'leased' then
  reply[2] = string.sub(cursor, 1, 16)
  look_at_leases()
elseif state == 'blocked' then
  look_at_blocked()
else
  look_at_members(state == 'ready' and q.heads_key or q.key.delayed)
end
reply[3] = passed
return reply
