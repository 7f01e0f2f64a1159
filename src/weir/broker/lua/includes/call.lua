--- include "limits"
-- The keys and arguments of every call, as named locals.
--   KEYS  1 the shard's timers (routes the call to its slot), 2 the metric stream, 3 the caller's slot,
--         4 a key that never exists: while keys of this slot move to another node of a cluster, the server then refuses the
--         call before the script begins, and not at the first key that it misses, when half of the work is done,
--         5 exists as long as this server has the data that the caller knows (left out: the caller knows none)
--   ARGV  1 key prefix of the shard, 2 the time in ms ('' outside tests: the server's), 3 '1' if the caller wants events,
--         4 maximal length of the stream, 5 number of the call in its slot (0: not recorded),
--         6 how long the reply is kept in ms, 7… the script's own
local STREAM_KEY, SLOT_KEY = KEYS[2], KEYS[3]
local PREFIX, METRICS_ON, STREAM_LENGTH = ARGV[1], ARGV[3], ARGV[4]
local CALL_NUMBER, KEEP_MS = tonumber(ARGV[5]), ARGV[6]
local FIRST_ARGUMENT = 7
-- A client that keeps to its bounds never comes near this.
if #ARGV > 5 * MAX_BATCH then error('TOOMANY arguments of a script') end
if KEYS[5] and redis.call('EXISTS', KEYS[5]) == 0 then return {'lost'} end
