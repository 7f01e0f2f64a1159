-- show_message: all that is known of a message that waits or is leased. Reads only.
-- ARGV  7 ident, 8 id, 16 bytes
-- Reply {'ok', state, member, the end of its lease and its holder ('' if it is not leased), body, last error, how many are
--       before it (-1 if it is leased), the id of the head that it waits behind ('' if there is none or it is unknown)}
--       | {'ok', ''} if there is none | {'ok', 'unindexed'} if an older program put it in and it is not indexed yet
--       | {'unknown'}
--- include "call"
--- include "keys"
--- include "layout"
--- include "load_queue"
--- include "member_of"
--- include "held_by"
local ident, id = ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1]
local q = load_queue(ident)
if not q then return {'unknown'} end
local body = redis.call('HGET', q.key.bodies, id)
if not body then return {'ok', ''} end
local error = redis.call('HGET', q.key.errors, id) or ''
local lease = redis.call('HGET', q.key.leases, id)
if lease then
  local holder, member = held_by(lease)
  return {'ok', 'leased', member, holder, body, error, -1, ''}
end
local member, unindexed = member_of(q, id)
if unindexed then return {'ok', 'unindexed'} end
if not member then return {'ok', ''} end
local _, _, attempts, _, _, _, _, rest = struct.unpack(MEMBER, member)
local rank = redis.call('ZRANK', q.key.delayed, member)
if rank then return {'ok', attempts > 0 and 'retrying' or 'scheduled', member, '', body, error, rank, ''} end
rank = redis.call('ZRANK', q.heads_key, member)
if rank then return {'ok', 'ready', member, '', body, error, rank, ''} end
local order_key = string.sub(member, rest)
local start = struct.pack('>I2', #order_key) .. order_key
local entry = start .. member
if not redis.call('ZSCORE', q.key.lanes, entry) then return {'ok', ''} end
-- Before it are the head of its key and the messages between them.
rank = 1 + redis.call('ZLEXCOUNT', q.key.lanes, '[' .. start, '(' .. entry)
local head = redis.call('HGET', q.key.locks, order_key) or ''
return {'ok', 'blocked', member, '', body, error, rank, #head >= 16 and string.sub(head, 1, 16) or ''}
