-- name: fill_lives
-- Insert lives of 20 queues over 20 days, with ids of version 7 and ten thousand different keys.
INSERT INTO message_lives
    (organization, project, environment, queue, bucket_start, ended_at, message_id, key, events, enqueued_at, available_at,
     handed_out_at, priority, attempts, attempt_started_at, attempt_ended_at, attempt_end, attempt_consumer, leased_ms, turn_ms,
     payload_bytes)
WITH
    now64(3, 'UTC') - toIntervalMillisecond(intDiv(20 * 86400000 * ({total:UInt64} - number), {total:UInt64})) AS at,
    concat('key-', leftPad(lower(hex(toUInt16(rand(1) % 10000))), 4, '0')) AS key_text,
    leftPad(lower(hex(toUInt64(toUnixTimestamp64Milli(at) - 1000))), 12, '0') AS stamp,
    leftPad(lower(hex(rand64(2))), 16, '0') AS digits,
    -- An interval in seconds would cut off the fraction.
    at - toIntervalMillisecond(50) AS handed_out
SELECT
    'bench', 'lives', 'ended', concat('q', toString(number % 20)), toStartOfInterval(at, INTERVAL 5 SECOND), at,
    toUUID(concat(substring(stamp, 1, 8), '-', substring(stamp, 9, 4), '-7', substring(digits, 1, 3), '-8',
        substring(digits, 4, 3), '-', substring(digits, 7, 4), substring(stamp, 5, 8))),
    key_text, 1, at - 1, at - 1, handed_out, 4, 1, [handed_out], [at], ['acked'], ['worker-1'], 50, 950, 100
FROM numbers({start:UInt64}, {count:UInt64})

-- name: sample_of_lives
-- Ids of some lives, from all days.
SELECT message_id AS id
FROM message_lives
ORDER BY cityHash64(message_id)
LIMIT {asked:UInt32}

-- name: merge_lives
-- Merge the parts of each day, as the server does in time.
OPTIMIZE TABLE message_lives FINAL

-- name: size_of_lives
-- Rows and bytes on disk.
SELECT sum(rows) AS rows, sum(bytes_on_disk) AS bytes
FROM system.parts
WHERE active AND database = currentDatabase() AND table = 'message_lives'
