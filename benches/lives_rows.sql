-- name: fill_lives
-- Lives of 20 queues over 20 days, each with a random id; one message in ten thousand has the same key.
INSERT INTO message_lives
    (organization, project, environment, queue, bucket_start, ended_at, message_id, key, events, enqueued_at, available_at,
     handed_out_at, priority, attempts, attempt_started_at, attempt_ended_at, attempt_end, attempt_consumer, leased_ms, turn_ms,
     payload_bytes)
WITH
    now64(3, 'UTC') - toIntervalMillisecond(intDiv(20 * 86400000 * ({total:UInt64} - number), {total:UInt64})) AS at,
    concat('key-', lower(hex(toUInt16(rand(1) % 10000)))) AS key_text
SELECT
    'bench', 'lives', 'ended', concat('q', toString(number % 20)), toStartOfInterval(at, INTERVAL 5 SECOND), at,
    generateUUIDv4(number), key_text, 1, at - 1, at - 1, at - 0.05, 4, 1, [at - 0.05], [at], ['acked'], ['worker-1'], 50, 950, 100
FROM numbers({start:UInt64}, {count:UInt64})

-- name: sample_of_lives
-- Ids of some lives, from all days.
SELECT message_id AS id
FROM message_lives
ORDER BY cityHash64(message_id)
LIMIT {asked:UInt32}
