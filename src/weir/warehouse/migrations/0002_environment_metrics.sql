-- Whole environments from the same landing insert: merging digests of all their queues at query time is too slow.
CREATE TABLE IF NOT EXISTS environment_metrics_5s
(
    organization String CODEC(ZSTD(1)),
    project String CODEC(ZSTD(1)),
    environment String CODEC(ZSTD(1)),
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
    max_environment_length SimpleAggregateFunction(max, UInt32) CODEC(T64, ZSTD(1)),
    max_environment_running SimpleAggregateFunction(max, UInt32) CODEC(T64, ZSTD(1)),
    max_environment_limit SimpleAggregateFunction(max, UInt32) CODEC(T64, ZSTD(1)),
    max_oldest_age_ms SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    last SimpleAggregateFunction(max, Tuple(at DateTime64(3, 'UTC'), sequence UInt32, environment_length UInt32, environment_running UInt32, environment_limit UInt32)) CODEC(ZSTD(1)),
    wait_count SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    wait_sum_ms SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    wait_max_ms SimpleAggregateFunction(max, UInt32) CODEC(T64, ZSTD(1)),
    wait_digest AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), UInt32) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(bucket_start)
ORDER BY (organization, project, environment, bucket_start)
TTL bucket_start + INTERVAL 2 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS environment_metrics_1m AS environment_metrics_5s
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(bucket_start)
ORDER BY (organization, project, environment, bucket_start)
TTL bucket_start + INTERVAL 31 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS environment_metrics_1h AS environment_metrics_5s
ENGINE = AggregatingMergeTree
PARTITION BY toYear(bucket_start)
ORDER BY (organization, project, environment, bucket_start)
TTL bucket_start + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS environment_metrics_5s_view TO environment_metrics_5s AS
SELECT
    organization,
    project,
    environment,
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
    max(e.max_environment_length) AS max_environment_length,
    max(e.max_environment_running) AS max_environment_running,
    max(e.max_environment_limit) AS max_environment_limit,
    max(e.max_oldest_age_ms) AS max_oldest_age_ms,
    max(tuple(e.last_at, e.last_sequence, e.last_environment_length, e.last_environment_running, e.last_environment_limit)) AS last,
    sum(length(e.wait_ms)) AS wait_count,
    sum(arraySum(e.wait_ms)) AS wait_sum_ms,
    maxArray(e.wait_ms) AS wait_max_ms,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(e.wait_ms) AS wait_digest
FROM queue_events_landing AS e
GROUP BY organization, project, environment, bucket_start;

CREATE MATERIALIZED VIEW IF NOT EXISTS environment_metrics_1m_view TO environment_metrics_1m AS
SELECT
    organization,
    project,
    environment,
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
    max(e.max_environment_length) AS max_environment_length,
    max(e.max_environment_running) AS max_environment_running,
    max(e.max_environment_limit) AS max_environment_limit,
    max(e.max_oldest_age_ms) AS max_oldest_age_ms,
    max(tuple(e.last_at, e.last_sequence, e.last_environment_length, e.last_environment_running, e.last_environment_limit)) AS last,
    sum(length(e.wait_ms)) AS wait_count,
    sum(arraySum(e.wait_ms)) AS wait_sum_ms,
    maxArray(e.wait_ms) AS wait_max_ms,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(e.wait_ms) AS wait_digest
FROM queue_events_landing AS e
GROUP BY organization, project, environment, bucket_start;

CREATE MATERIALIZED VIEW IF NOT EXISTS environment_metrics_1h_view TO environment_metrics_1h AS
SELECT
    organization,
    project,
    environment,
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
    max(e.max_environment_length) AS max_environment_length,
    max(e.max_environment_running) AS max_environment_running,
    max(e.max_environment_limit) AS max_environment_limit,
    max(e.max_oldest_age_ms) AS max_oldest_age_ms,
    max(tuple(e.last_at, e.last_sequence, e.last_environment_length, e.last_environment_running, e.last_environment_limit)) AS last,
    sum(length(e.wait_ms)) AS wait_count,
    sum(arraySum(e.wait_ms)) AS wait_sum_ms,
    maxArray(e.wait_ms) AS wait_max_ms,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(e.wait_ms) AS wait_digest
FROM queue_events_landing AS e
GROUP BY organization, project, environment, bucket_start;
