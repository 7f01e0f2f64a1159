-- The lags of the messages that processes got, by process and queue, with percentiles within 1 %.
CREATE TABLE IF NOT EXISTS worker_lag_events_landing
(
    worker_id String,
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
    lag_ms Array(UInt32)
)
ENGINE = Null;

CREATE TABLE IF NOT EXISTS worker_lag_metrics_5s
(
    worker_id String CODEC(ZSTD(1)),
    organization String CODEC(ZSTD(1)),
    project String CODEC(ZSTD(1)),
    environment String CODEC(ZSTD(1)),
    queue String CODEC(ZSTD(1)),
    bucket_start DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    events SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    lag_ms_count SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    lag_ms_sum SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    lag_ms_max SimpleAggregateFunction(max, UInt32) CODEC(T64, ZSTD(1)),
    lag_ms_sketch AggregateFunction(quantilesDD(0.01, 0.5, 0.95, 0.99), UInt32) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(bucket_start)
ORDER BY (worker_id, organization, project, environment, queue, bucket_start)
TTL bucket_start + INTERVAL 2 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS worker_lag_metrics_1m AS worker_lag_metrics_5s
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(bucket_start)
ORDER BY (worker_id, organization, project, environment, queue, bucket_start)
TTL bucket_start + INTERVAL 31 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS worker_lag_metrics_1h AS worker_lag_metrics_5s
ENGINE = AggregatingMergeTree
PARTITION BY toYear(bucket_start)
ORDER BY (worker_id, organization, project, environment, queue, bucket_start)
TTL bucket_start + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS worker_lag_metrics_5s_view TO worker_lag_metrics_5s AS
SELECT
    worker_id,
    organization,
    project,
    environment,
    queue,
    e.bucket_start AS bucket_start,
    sum(e.events) AS events,
    sum(length(e.lag_ms)) AS lag_ms_count,
    sum(arraySum(e.lag_ms)) AS lag_ms_sum,
    max(arrayMax(e.lag_ms)) AS lag_ms_max,
    quantilesDDArrayState(0.01, 0.5, 0.95, 0.99)(e.lag_ms) AS lag_ms_sketch
FROM worker_lag_events_landing AS e
GROUP BY worker_id, organization, project, environment, queue, bucket_start;

CREATE MATERIALIZED VIEW IF NOT EXISTS worker_lag_metrics_1m_view TO worker_lag_metrics_1m AS
SELECT
    worker_id,
    organization,
    project,
    environment,
    queue,
    toStartOfMinute(e.bucket_start) AS bucket_start,
    sum(e.events) AS events,
    sum(length(e.lag_ms)) AS lag_ms_count,
    sum(arraySum(e.lag_ms)) AS lag_ms_sum,
    max(arrayMax(e.lag_ms)) AS lag_ms_max,
    quantilesDDArrayState(0.01, 0.5, 0.95, 0.99)(e.lag_ms) AS lag_ms_sketch
FROM worker_lag_events_landing AS e
GROUP BY worker_id, organization, project, environment, queue, bucket_start;

CREATE MATERIALIZED VIEW IF NOT EXISTS worker_lag_metrics_1h_view TO worker_lag_metrics_1h AS
SELECT
    worker_id,
    organization,
    project,
    environment,
    queue,
    toStartOfHour(e.bucket_start) AS bucket_start,
    sum(e.events) AS events,
    sum(length(e.lag_ms)) AS lag_ms_count,
    sum(arraySum(e.lag_ms)) AS lag_ms_sum,
    max(arrayMax(e.lag_ms)) AS lag_ms_max,
    quantilesDDArrayState(0.01, 0.5, 0.95, 0.99)(e.lag_ms) AS lag_ms_sketch
FROM worker_lag_events_landing AS e
GROUP BY worker_id, organization, project, environment, queue, bucket_start;

CREATE MATERIALIZED VIEW IF NOT EXISTS worker_lag_ingest_offsets_view TO ingest_offsets AS
SELECT
    'worker_lag' AS metric,
    e.shard AS shard,
    max(tuple(e.last_at, e.last_sequence)) AS position,
    sum(e.events) AS events,
    now64(3, 'UTC') AS landed_at
FROM worker_lag_events_landing AS e
WHERE rebuilt = 0
GROUP BY shard;
