-- One insert into the landing table feeds every tier, so all of them hold the same events.
CREATE TABLE IF NOT EXISTS queue_events_landing
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
    enqueued UInt64,
    dequeued UInt64,
    acked UInt64,
    nacked UInt64,
    dead UInt64,
    expired UInt64,
    lapsed UInt64,
    refused UInt64,
    max_queue_length UInt32,
    last_queue_length UInt32,
    max_running UInt32,
    last_running UInt32,
    max_queue_limit UInt32,
    last_queue_limit UInt32,
    max_environment_length UInt32,
    last_environment_length UInt32,
    max_environment_running UInt32,
    last_environment_running UInt32,
    max_environment_limit UInt32,
    last_environment_limit UInt32,
    max_paused UInt8,
    last_paused UInt8,
    max_oldest_age_ms UInt64,
    last_oldest_age_ms UInt64,
    enqueued_total UInt64,
    dequeued_total UInt64,
    acked_total UInt64,
    nacked_total UInt64,
    dead_total UInt64,
    expired_total UInt64,
    lapsed_total UInt64,
    refused_total UInt64,
    wait_ms Array(UInt32)
)
ENGINE = Null;

CREATE TABLE IF NOT EXISTS queue_metrics_5s
(
    organization String CODEC(ZSTD(1)),
    project String CODEC(ZSTD(1)),
    environment String CODEC(ZSTD(1)),
    queue String CODEC(ZSTD(1)),
    bucket_start DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    events SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    enqueued SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    dequeued SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    acked SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    nacked SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    dead SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    expired SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    lapsed SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    refused SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    max_queue_length SimpleAggregateFunction(max, UInt32) CODEC(T64, ZSTD(1)),
    max_running SimpleAggregateFunction(max, UInt32) CODEC(T64, ZSTD(1)),
    max_queue_limit SimpleAggregateFunction(max, UInt32) CODEC(T64, ZSTD(1)),
    max_environment_length SimpleAggregateFunction(max, UInt32) CODEC(T64, ZSTD(1)),
    max_environment_running SimpleAggregateFunction(max, UInt32) CODEC(T64, ZSTD(1)),
    max_environment_limit SimpleAggregateFunction(max, UInt32) CODEC(T64, ZSTD(1)),
    max_paused SimpleAggregateFunction(max, UInt8) CODEC(T64, ZSTD(1)),
    max_oldest_age_ms SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    enqueued_total SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    dequeued_total SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    acked_total SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    nacked_total SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    dead_total SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    expired_total SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    lapsed_total SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    refused_total SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    last SimpleAggregateFunction(max, Tuple(at DateTime64(3, 'UTC'), sequence UInt32, queue_length UInt32, running UInt32, queue_limit UInt32, environment_length UInt32, environment_running UInt32, environment_limit UInt32, paused UInt8, oldest_age_ms UInt64)) CODEC(ZSTD(1)),
    wait_count SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    wait_sum_ms SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    wait_max_ms SimpleAggregateFunction(max, UInt32) CODEC(T64, ZSTD(1)),
    wait_digest AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), UInt32) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(bucket_start)
ORDER BY (organization, project, environment, queue, bucket_start)
TTL bucket_start + INTERVAL 2 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS queue_metrics_1m AS queue_metrics_5s
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(bucket_start)
ORDER BY (organization, project, environment, queue, bucket_start)
TTL bucket_start + INTERVAL 31 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS queue_metrics_1h AS queue_metrics_5s
ENGINE = AggregatingMergeTree
PARTITION BY toYear(bucket_start)
ORDER BY (organization, project, environment, queue, bucket_start)
TTL bucket_start + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS queue_metrics_5s_view TO queue_metrics_5s AS
SELECT
    organization,
    project,
    environment,
    queue,
    e.bucket_start AS bucket_start,
    sum(e.events) AS events,
    sum(e.enqueued) AS enqueued,
    sum(e.dequeued) AS dequeued,
    sum(e.acked) AS acked,
    sum(e.nacked) AS nacked,
    sum(e.dead) AS dead,
    sum(e.expired) AS expired,
    sum(e.lapsed) AS lapsed,
    sum(e.refused) AS refused,
    max(e.max_queue_length) AS max_queue_length,
    max(e.max_running) AS max_running,
    max(e.max_queue_limit) AS max_queue_limit,
    max(e.max_environment_length) AS max_environment_length,
    max(e.max_environment_running) AS max_environment_running,
    max(e.max_environment_limit) AS max_environment_limit,
    max(e.max_paused) AS max_paused,
    max(e.max_oldest_age_ms) AS max_oldest_age_ms,
    max(e.enqueued_total) AS enqueued_total,
    max(e.dequeued_total) AS dequeued_total,
    max(e.acked_total) AS acked_total,
    max(e.nacked_total) AS nacked_total,
    max(e.dead_total) AS dead_total,
    max(e.expired_total) AS expired_total,
    max(e.lapsed_total) AS lapsed_total,
    max(e.refused_total) AS refused_total,
    max(tuple(e.last_at, e.last_sequence, e.last_queue_length, e.last_running, e.last_queue_limit, e.last_environment_length, e.last_environment_running, e.last_environment_limit, e.last_paused, e.last_oldest_age_ms)) AS last,
    sum(length(e.wait_ms)) AS wait_count,
    sum(arraySum(e.wait_ms)) AS wait_sum_ms,
    maxArray(e.wait_ms) AS wait_max_ms,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(e.wait_ms) AS wait_digest
FROM queue_events_landing AS e
GROUP BY organization, project, environment, queue, bucket_start;

CREATE MATERIALIZED VIEW IF NOT EXISTS queue_metrics_1m_view TO queue_metrics_1m AS
SELECT
    organization,
    project,
    environment,
    queue,
    toStartOfMinute(e.bucket_start) AS bucket_start,
    sum(e.events) AS events,
    sum(e.enqueued) AS enqueued,
    sum(e.dequeued) AS dequeued,
    sum(e.acked) AS acked,
    sum(e.nacked) AS nacked,
    sum(e.dead) AS dead,
    sum(e.expired) AS expired,
    sum(e.lapsed) AS lapsed,
    sum(e.refused) AS refused,
    max(e.max_queue_length) AS max_queue_length,
    max(e.max_running) AS max_running,
    max(e.max_queue_limit) AS max_queue_limit,
    max(e.max_environment_length) AS max_environment_length,
    max(e.max_environment_running) AS max_environment_running,
    max(e.max_environment_limit) AS max_environment_limit,
    max(e.max_paused) AS max_paused,
    max(e.max_oldest_age_ms) AS max_oldest_age_ms,
    max(e.enqueued_total) AS enqueued_total,
    max(e.dequeued_total) AS dequeued_total,
    max(e.acked_total) AS acked_total,
    max(e.nacked_total) AS nacked_total,
    max(e.dead_total) AS dead_total,
    max(e.expired_total) AS expired_total,
    max(e.lapsed_total) AS lapsed_total,
    max(e.refused_total) AS refused_total,
    max(tuple(e.last_at, e.last_sequence, e.last_queue_length, e.last_running, e.last_queue_limit, e.last_environment_length, e.last_environment_running, e.last_environment_limit, e.last_paused, e.last_oldest_age_ms)) AS last,
    sum(length(e.wait_ms)) AS wait_count,
    sum(arraySum(e.wait_ms)) AS wait_sum_ms,
    maxArray(e.wait_ms) AS wait_max_ms,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(e.wait_ms) AS wait_digest
FROM queue_events_landing AS e
GROUP BY organization, project, environment, queue, bucket_start;

CREATE MATERIALIZED VIEW IF NOT EXISTS queue_metrics_1h_view TO queue_metrics_1h AS
SELECT
    organization,
    project,
    environment,
    queue,
    toStartOfHour(e.bucket_start) AS bucket_start,
    sum(e.events) AS events,
    sum(e.enqueued) AS enqueued,
    sum(e.dequeued) AS dequeued,
    sum(e.acked) AS acked,
    sum(e.nacked) AS nacked,
    sum(e.dead) AS dead,
    sum(e.expired) AS expired,
    sum(e.lapsed) AS lapsed,
    sum(e.refused) AS refused,
    max(e.max_queue_length) AS max_queue_length,
    max(e.max_running) AS max_running,
    max(e.max_queue_limit) AS max_queue_limit,
    max(e.max_environment_length) AS max_environment_length,
    max(e.max_environment_running) AS max_environment_running,
    max(e.max_environment_limit) AS max_environment_limit,
    max(e.max_paused) AS max_paused,
    max(e.max_oldest_age_ms) AS max_oldest_age_ms,
    max(e.enqueued_total) AS enqueued_total,
    max(e.dequeued_total) AS dequeued_total,
    max(e.acked_total) AS acked_total,
    max(e.nacked_total) AS nacked_total,
    max(e.dead_total) AS dead_total,
    max(e.expired_total) AS expired_total,
    max(e.lapsed_total) AS lapsed_total,
    max(e.refused_total) AS refused_total,
    max(tuple(e.last_at, e.last_sequence, e.last_queue_length, e.last_running, e.last_queue_limit, e.last_environment_length, e.last_environment_running, e.last_environment_limit, e.last_paused, e.last_oldest_age_ms)) AS last,
    sum(length(e.wait_ms)) AS wait_count,
    sum(arraySum(e.wait_ms)) AS wait_sum_ms,
    maxArray(e.wait_ms) AS wait_max_ms,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(e.wait_ms) AS wait_digest
FROM queue_events_landing AS e
GROUP BY organization, project, environment, queue, bucket_start;
