-- Processes about themselves; their own landing table and tiers.
CREATE TABLE IF NOT EXISTS worker_events_landing
(
    role String,
    hostname String,
    worker_id String,
    pid String,
    bucket_start DateTime('UTC'),
    shard UInt16,
    rebuilt UInt8,
    last_at DateTime64(3, 'UTC'),
    last_sequence UInt32,
    events UInt64,
    samples UInt64,
    event_loop_lag_us_sum UInt64,
    event_loop_lag_us_max UInt32,
    free_slots_sum UInt64,
    free_slots_min UInt32,
    max_pool_size UInt32,
    last_pool_size UInt32,
    internal_queue_sum UInt64,
    internal_queue_max UInt32,
    backoff_sum UInt64,
    backoff_max UInt32,
    jobs_done UInt64,
    pushes UInt64,
    pops UInt64,
    acks UInt64,
    transactions UInt64,
    errors UInt64,
    deaths UInt64,
    lag_count UInt64,
    lag_ms_sum UInt64,
    lag_ms_max UInt64
)
ENGINE = Null;

CREATE TABLE IF NOT EXISTS worker_metrics_5s
(
    role String CODEC(ZSTD(1)),
    hostname String CODEC(ZSTD(1)),
    worker_id String CODEC(ZSTD(1)),
    pid String CODEC(ZSTD(1)),
    bucket_start DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    events SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    samples SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    event_loop_lag_us_sum SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    event_loop_lag_us_max SimpleAggregateFunction(max, UInt32) CODEC(T64, ZSTD(1)),
    free_slots_sum SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    free_slots_min SimpleAggregateFunction(min, UInt32) CODEC(T64, ZSTD(1)),
    max_pool_size SimpleAggregateFunction(max, UInt32) CODEC(T64, ZSTD(1)),
    internal_queue_sum SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    internal_queue_max SimpleAggregateFunction(max, UInt32) CODEC(T64, ZSTD(1)),
    backoff_sum SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    backoff_max SimpleAggregateFunction(max, UInt32) CODEC(T64, ZSTD(1)),
    jobs_done SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    pushes SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    pops SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    acks SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    transactions SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    errors SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    deaths SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    lag_count SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    lag_ms_sum SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    lag_ms_max SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    last SimpleAggregateFunction(max, Tuple(at DateTime64(3, 'UTC'), sequence UInt32, pool_size UInt32)) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(bucket_start)
ORDER BY (role, hostname, worker_id, pid, bucket_start)
TTL bucket_start + INTERVAL 2 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS worker_metrics_1m AS worker_metrics_5s
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(bucket_start)
ORDER BY (role, hostname, worker_id, pid, bucket_start)
TTL bucket_start + INTERVAL 31 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS worker_metrics_1h AS worker_metrics_5s
ENGINE = AggregatingMergeTree
PARTITION BY toYear(bucket_start)
ORDER BY (role, hostname, worker_id, pid, bucket_start)
TTL bucket_start + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS worker_metrics_5s_view TO worker_metrics_5s AS
SELECT
    role,
    hostname,
    worker_id,
    pid,
    e.bucket_start AS bucket_start,
    sum(e.events) AS events,
    sum(e.samples) AS samples,
    sum(e.event_loop_lag_us_sum) AS event_loop_lag_us_sum,
    max(e.event_loop_lag_us_max) AS event_loop_lag_us_max,
    sum(e.free_slots_sum) AS free_slots_sum,
    min(e.free_slots_min) AS free_slots_min,
    max(e.max_pool_size) AS max_pool_size,
    sum(e.internal_queue_sum) AS internal_queue_sum,
    max(e.internal_queue_max) AS internal_queue_max,
    sum(e.backoff_sum) AS backoff_sum,
    max(e.backoff_max) AS backoff_max,
    sum(e.jobs_done) AS jobs_done,
    sum(e.pushes) AS pushes,
    sum(e.pops) AS pops,
    sum(e.acks) AS acks,
    sum(e.transactions) AS transactions,
    sum(e.errors) AS errors,
    sum(e.deaths) AS deaths,
    sum(e.lag_count) AS lag_count,
    sum(e.lag_ms_sum) AS lag_ms_sum,
    max(e.lag_ms_max) AS lag_ms_max,
    max(tuple(e.last_at, e.last_sequence, e.last_pool_size)) AS last
FROM worker_events_landing AS e
GROUP BY role, hostname, worker_id, pid, bucket_start;

CREATE MATERIALIZED VIEW IF NOT EXISTS worker_metrics_1m_view TO worker_metrics_1m AS
SELECT
    role,
    hostname,
    worker_id,
    pid,
    toStartOfMinute(e.bucket_start) AS bucket_start,
    sum(e.events) AS events,
    sum(e.samples) AS samples,
    sum(e.event_loop_lag_us_sum) AS event_loop_lag_us_sum,
    max(e.event_loop_lag_us_max) AS event_loop_lag_us_max,
    sum(e.free_slots_sum) AS free_slots_sum,
    min(e.free_slots_min) AS free_slots_min,
    max(e.max_pool_size) AS max_pool_size,
    sum(e.internal_queue_sum) AS internal_queue_sum,
    max(e.internal_queue_max) AS internal_queue_max,
    sum(e.backoff_sum) AS backoff_sum,
    max(e.backoff_max) AS backoff_max,
    sum(e.jobs_done) AS jobs_done,
    sum(e.pushes) AS pushes,
    sum(e.pops) AS pops,
    sum(e.acks) AS acks,
    sum(e.transactions) AS transactions,
    sum(e.errors) AS errors,
    sum(e.deaths) AS deaths,
    sum(e.lag_count) AS lag_count,
    sum(e.lag_ms_sum) AS lag_ms_sum,
    max(e.lag_ms_max) AS lag_ms_max,
    max(tuple(e.last_at, e.last_sequence, e.last_pool_size)) AS last
FROM worker_events_landing AS e
GROUP BY role, hostname, worker_id, pid, bucket_start;

CREATE MATERIALIZED VIEW IF NOT EXISTS worker_metrics_1h_view TO worker_metrics_1h AS
SELECT
    role,
    hostname,
    worker_id,
    pid,
    toStartOfHour(e.bucket_start) AS bucket_start,
    sum(e.events) AS events,
    sum(e.samples) AS samples,
    sum(e.event_loop_lag_us_sum) AS event_loop_lag_us_sum,
    max(e.event_loop_lag_us_max) AS event_loop_lag_us_max,
    sum(e.free_slots_sum) AS free_slots_sum,
    min(e.free_slots_min) AS free_slots_min,
    max(e.max_pool_size) AS max_pool_size,
    sum(e.internal_queue_sum) AS internal_queue_sum,
    max(e.internal_queue_max) AS internal_queue_max,
    sum(e.backoff_sum) AS backoff_sum,
    max(e.backoff_max) AS backoff_max,
    sum(e.jobs_done) AS jobs_done,
    sum(e.pushes) AS pushes,
    sum(e.pops) AS pops,
    sum(e.acks) AS acks,
    sum(e.transactions) AS transactions,
    sum(e.errors) AS errors,
    sum(e.deaths) AS deaths,
    sum(e.lag_count) AS lag_count,
    sum(e.lag_ms_sum) AS lag_ms_sum,
    max(e.lag_ms_max) AS lag_ms_max,
    max(tuple(e.last_at, e.last_sequence, e.last_pool_size)) AS last
FROM worker_events_landing AS e
GROUP BY role, hostname, worker_id, pid, bucket_start;
