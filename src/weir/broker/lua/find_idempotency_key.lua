-- find_idempotency_key: the first message that came with an idempotency key within its window. Reads only.
-- ARGV  7 ident, 8 idempotency key
-- Reply {'ok', id (16 bytes), empty if there is none} | {'unknown'}
--- include "call"
--- include "clock"
--- include "keys"
local keys, idempotency = queue_keys(ARGV[FIRST_ARGUMENT]), ARGV[FIRST_ARGUMENT + 1]
if redis.call('EXISTS', keys.base) == 0 then return {'unknown'} end
local answer = redis.call('HGET', keys.seen, idempotency)
if not answer or struct.unpack('>I8', answer) <= clock() then return {'ok', ''} end
return {'ok', string.sub(answer, 9, 24)}
