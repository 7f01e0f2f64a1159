-- The log of queues that keep one: a row per message that ended, with its life, headers and payload.
-- Landing rows are those of lives with what the messages carried.
CREATE TABLE IF NOT EXISTS log_events_landing
(
    organization String,
    project String,
    environment String,
    queue String,
    bucket_start DateTime('UTC'),
    shard UInt16,
    rebuilt UInt8,
    last_at DateTime64(3, 'UTC'),
    last_sequence UInt32,
    events UInt64,
    lives_total UInt64,
    message_id FixedString(16),
    key String,
    outcome UInt8,
    reason UInt8,
    enqueued_ms UInt64,
    available_ms UInt64,
    handed_out_ms UInt64,
    ended_ms UInt64,
    priority UInt8,
    attempts UInt32,
    attempt_started_ms Array(UInt64),
    attempt_ended_ms Array(UInt64),
    attempt_end Array(UInt8),
    attempt_consumer Array(String),
    handler_ms Nullable(UInt32),
    leased_ms UInt64,
    scheduled_ms UInt64,
    backoff_ms UInt64,
    blocked_ms UInt64,
    paused_ms UInt64,
    queue_limit_ms UInt64,
    environment_limit_ms UInt64,
    unasked_ms UInt64,
    turn_ms UInt64,
    unknown_ms UInt64,
    blocked_by_id FixedString(16),
    payload_bytes UInt32,
    keep_s UInt32,
    number UInt64,
    left_out UInt8,
    idempotency_key String,
    headers String,
    payload String
)
ENGINE = Null;

-- A row is removed on the day after `kept_until`, so that a part is rewritten once a day at most. `number` is the place of
-- the message among all that ended in its queue. `left_out` is 1 if headers and payload are not here.
CREATE TABLE IF NOT EXISTS message_log
(
    organization LowCardinality(String) CODEC(ZSTD(1)),
    project LowCardinality(String) CODEC(ZSTD(1)),
    environment LowCardinality(String) CODEC(ZSTD(1)),
    queue LowCardinality(String) CODEC(ZSTD(1)),
    bucket_start DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    ended_at DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    message_id UUID CODEC(ZSTD(1)),
    key String CODEC(ZSTD(1)),
    events UInt8 CODEC(T64, ZSTD(1)),
    shard UInt16 CODEC(T64, ZSTD(1)),
    outcome Enum8('acked' = 0, 'dead' = 1, 'expired' = 2, 'cancelled' = 3) CODEC(ZSTD(1)),
    reason Enum8('' = 0, 'attempts' = 1, 'rejected' = 2, 'expired' = 3, 'lapsed' = 4) CODEC(ZSTD(1)),
    enqueued_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    available_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    handed_out_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    priority UInt8 CODEC(T64, ZSTD(1)),
    attempts UInt32 CODEC(T64, ZSTD(1)),
    attempt_started_at Array(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    attempt_ended_at Array(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    attempt_end Array(Enum8('acked' = 0, 'failed' = 1, 'rejected' = 2, 'lapsed' = 3, 'cancelled' = 4)) CODEC(ZSTD(1)),
    attempt_consumer Array(LowCardinality(String)) CODEC(ZSTD(1)),
    handler_ms Nullable(UInt32) CODEC(ZSTD(1)),
    leased_ms UInt64 CODEC(T64, ZSTD(1)),
    scheduled_ms UInt64 CODEC(T64, ZSTD(1)),
    backoff_ms UInt64 CODEC(T64, ZSTD(1)),
    blocked_ms UInt64 CODEC(T64, ZSTD(1)),
    paused_ms UInt64 CODEC(T64, ZSTD(1)),
    queue_limit_ms UInt64 CODEC(T64, ZSTD(1)),
    environment_limit_ms UInt64 CODEC(T64, ZSTD(1)),
    unasked_ms UInt64 CODEC(T64, ZSTD(1)),
    turn_ms UInt64 CODEC(T64, ZSTD(1)),
    unknown_ms UInt64 CODEC(T64, ZSTD(1)),
    blocked_by_id UUID CODEC(ZSTD(1)),
    payload_bytes UInt32 CODEC(T64, ZSTD(1)),
    number UInt64 CODEC(Delta, ZSTD(1)),
    kept_until DateTime('UTC') CODEC(Delta, ZSTD(1)),
    left_out UInt8 CODEC(T64, ZSTD(1)),
    idempotency_key String CODEC(ZSTD(1)),
    headers String CODEC(ZSTD(1)),
    payload String CODEC(ZSTD(3)),
    INDEX by_id message_id TYPE bloom_filter(0.001) GRANULARITY 4,
    INDEX by_key key TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(bucket_start)
ORDER BY (organization, project, environment, queue, ended_at, number)
TTL toStartOfDay(kept_until) + INTERVAL 1 DAY
SETTINGS non_replicated_deduplication_window = 10000, index_granularity = 1024;

CREATE MATERIALIZED VIEW IF NOT EXISTS message_log_view TO message_log AS
SELECT
    organization,
    project,
    environment,
    queue,
    bucket_start,
    fromUnixTimestamp64Milli(toInt64(ended_ms), 'UTC') AS ended_at,
    toUUID(UUIDNumToString(e.message_id)) AS message_id,
    key,
    events,
    shard,
    CAST(e.outcome, 'Enum8(\'acked\' = 0, \'dead\' = 1, \'expired\' = 2, \'cancelled\' = 3)') AS outcome,
    CAST(e.reason, 'Enum8(\'\' = 0, \'attempts\' = 1, \'rejected\' = 2, \'expired\' = 3, \'lapsed\' = 4)') AS reason,
    fromUnixTimestamp64Milli(toInt64(enqueued_ms), 'UTC') AS enqueued_at,
    fromUnixTimestamp64Milli(toInt64(available_ms), 'UTC') AS available_at,
    fromUnixTimestamp64Milli(toInt64(handed_out_ms), 'UTC') AS handed_out_at,
    priority,
    attempts,
    arrayMap(at -> fromUnixTimestamp64Milli(toInt64(at), 'UTC'), attempt_started_ms) AS attempt_started_at,
    arrayMap(at -> fromUnixTimestamp64Milli(toInt64(at), 'UTC'), attempt_ended_ms) AS attempt_ended_at,
    CAST(
        e.attempt_end,
        'Array(Enum8(\'acked\' = 0, \'failed\' = 1, \'rejected\' = 2, \'lapsed\' = 3, \'cancelled\' = 4))'
    ) AS attempt_end,
    attempt_consumer,
    handler_ms,
    leased_ms,
    scheduled_ms,
    backoff_ms,
    blocked_ms,
    paused_ms,
    queue_limit_ms,
    environment_limit_ms,
    unasked_ms,
    turn_ms,
    unknown_ms,
    toUUID(UUIDNumToString(e.blocked_by_id)) AS blocked_by_id,
    payload_bytes,
    number,
    toDateTime(least(intDiv(e.ended_ms, 1000) + keep_s, 4291747200), 'UTC') AS kept_until,
    left_out,
    idempotency_key,
    headers,
    payload
FROM log_events_landing AS e;

CREATE MATERIALIZED VIEW IF NOT EXISTS log_ingest_offsets_view TO ingest_offsets AS
SELECT
    'log' AS metric,
    e.shard AS shard,
    max(tuple(e.last_at, e.last_sequence)) AS position,
    sum(e.events) AS events,
    now64(3, 'UTC') AS landed_at
FROM log_events_landing AS e
WHERE rebuilt = 0
GROUP BY shard;
