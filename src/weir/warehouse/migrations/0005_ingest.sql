-- How far each shard of each metric has landed; fed by the landing inserts themselves.
CREATE TABLE IF NOT EXISTS ingest_offsets
(
    metric String,
    shard UInt16,
    position SimpleAggregateFunction(max, Tuple(at DateTime64(3, 'UTC'), sequence UInt32)),
    events SimpleAggregateFunction(sum, UInt64),
    landed_at SimpleAggregateFunction(max, DateTime64(3, 'UTC'))
)
ENGINE = AggregatingMergeTree
ORDER BY (metric, shard)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS queue_ingest_offsets_view TO ingest_offsets AS
SELECT
    'queue' AS metric,
    e.shard AS shard,
    max(tuple(e.last_at, e.last_sequence)) AS position,
    sum(e.events) AS events,
    now64(3, 'UTC') AS landed_at
FROM queue_events_landing AS e
WHERE rebuilt = 0
GROUP BY shard;

CREATE MATERIALIZED VIEW IF NOT EXISTS worker_ingest_offsets_view TO ingest_offsets AS
SELECT
    'worker' AS metric,
    e.shard AS shard,
    max(tuple(e.last_at, e.last_sequence)) AS position,
    sum(e.events) AS events,
    now64(3, 'UTC') AS landed_at
FROM worker_events_landing AS e
WHERE rebuilt = 0
GROUP BY shard;

-- Entries that Redis dropped before they were read: shown as unknown, never as zero.
CREATE TABLE IF NOT EXISTS metric_gaps
(
    metric String,
    shard UInt16,
    from_id String,
    to_id String,
    from_at DateTime64(3, 'UTC'),
    to_at DateTime64(3, 'UTC'),
    reason LowCardinality(String),
    entries Nullable(UInt64),
    detected_at DateTime64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (metric, shard, from_at, from_id)
TTL toDateTime(to_at) + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 10000;

-- Events that were set aside, clamped or came late: how many, why, and a few of them to look at.
CREATE TABLE IF NOT EXISTS metric_rejects
(
    metric String,
    shard UInt16,
    reason LowCardinality(String),
    action LowCardinality(String),
    events UInt64,
    first_id String,
    last_id String,
    samples Array(String),
    detected_at DateTime64(3, 'UTC')
)
ENGINE = MergeTree
ORDER BY (metric, detected_at)
TTL toDateTime(detected_at) + INTERVAL 31 DAY
SETTINGS non_replicated_deduplication_window = 10000;
