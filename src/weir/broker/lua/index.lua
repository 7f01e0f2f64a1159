-- index: note the places of messages that an older program put in, a step per call. Afterwards each can be found by its id.
-- ARGV  7 ident
-- Reply {'ok', '1' if there are more} | {'unknown'}
--- include "call"
--- include "clock"
--- include "load_queue"
--- include "save_queue"
--- include "wait_of"
--- include "end_delay"
--- include "note_wait"
local STEP = 500
local q = load_queue(ARGV[FIRST_ARGUMENT])
if not q then return {'unknown'} end
-- Older programs refuse a queue of this version, so none of them adds messages behind the walk.
if q.older then save_queue(q, clock()) end
local keys = q.key
-- A message that moves during the walk notes its place itself, and one that stays is seen.
local walked = redis.call('HGET', keys.base, 'index') or 'ready 0'
if walked == 'all' then return {'ok', '0'} end
local part, cursor = string.match(walked, '^(%l+) (%d+)$')
local page = redis.call('ZSCAN', keys[part], cursor, 'COUNT', STEP)
local upgraded = tonumber(redis.call('HGET', keys.base, 'upgraded') or 0)
for i = 1, #page[2], 2 do
  local member = page[2][i]
  local sequence, id, _, enqueued = struct.unpack('>I8c16I4I8', member)
  local stands, order_key = string.sub(member, 1, 8) .. string.sub(member, 25, 53), string.sub(member, 54)
  if sequence == 0 then
    -- It was never available, so it has waited for its time since it was put in, whichever program did that.
    local w = wait_of(nil, enqueued)
    end_delay(w, 0, enqueued)
    redis.call('HSETNX', keys.places, id, note_wait(stands, order_key, w))
  elseif sequence <= upgraded then
    redis.call('HSETNX', keys.places, id, stands .. order_key)
  end
end
local next_step = part .. ' ' .. page[1]
if page[1] == '0' then next_step = part == 'ready' and 'delayed 0' or 'all' end
redis.call('HSET', keys.base, 'index', next_step)
return {'ok', next_step == 'all' and '0' or '1'}
