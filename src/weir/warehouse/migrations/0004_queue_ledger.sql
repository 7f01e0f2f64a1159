-- What was counted beside what the odometers say, per queue and without expiry: the two accounts of the audit.
CREATE TABLE IF NOT EXISTS queue_ledger
(
    organization String CODEC(ZSTD(1)),
    project String CODEC(ZSTD(1)),
    environment String CODEC(ZSTD(1)),
    queue String CODEC(ZSTD(1)),
    shard SimpleAggregateFunction(max, UInt16),
    events SimpleAggregateFunction(sum, UInt64),
    last_at SimpleAggregateFunction(max, DateTime64(3, 'UTC')),
    enqueued SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    dequeued SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    acked SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    nacked SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    dead SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    expired SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    lapsed SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    refused SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    enqueued_total SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    dequeued_total SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    acked_total SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    nacked_total SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    dead_total SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    expired_total SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    lapsed_total SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
    refused_total SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1))
)
ENGINE = AggregatingMergeTree
ORDER BY (organization, project, environment, queue)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS queue_ledger_view TO queue_ledger AS
SELECT
    organization,
    project,
    environment,
    queue,
    max(e.shard) AS shard,
    sum(e.events) AS events,
    max(e.last_at) AS last_at,
    sum(e.enqueued) AS enqueued,
    sum(e.dequeued) AS dequeued,
    sum(e.acked) AS acked,
    sum(e.nacked) AS nacked,
    sum(e.dead) AS dead,
    sum(e.expired) AS expired,
    sum(e.lapsed) AS lapsed,
    sum(e.refused) AS refused,
    max(e.enqueued_total) AS enqueued_total,
    max(e.dequeued_total) AS dequeued_total,
    max(e.acked_total) AS acked_total,
    max(e.nacked_total) AS nacked_total,
    max(e.dead_total) AS dead_total,
    max(e.expired_total) AS expired_total,
    max(e.lapsed_total) AS lapsed_total,
    max(e.refused_total) AS refused_total
FROM queue_events_landing AS e
WHERE rebuilt = 0
GROUP BY organization, project, environment, queue;

-- What a queue lost in recorded gaps, by odometer; `gap` is the gap's shard and first missing id.
CREATE TABLE IF NOT EXISTS queue_losses
(
    organization String CODEC(ZSTD(1)),
    project String CODEC(ZSTD(1)),
    environment String CODEC(ZSTD(1)),
    queue String CODEC(ZSTD(1)),
    shard UInt16,
    gap String,
    enqueued SimpleAggregateFunction(sum, UInt64),
    dequeued SimpleAggregateFunction(sum, UInt64),
    acked SimpleAggregateFunction(sum, UInt64),
    nacked SimpleAggregateFunction(sum, UInt64),
    dead SimpleAggregateFunction(sum, UInt64),
    expired SimpleAggregateFunction(sum, UInt64),
    lapsed SimpleAggregateFunction(sum, UInt64),
    refused SimpleAggregateFunction(sum, UInt64)
)
ENGINE = AggregatingMergeTree
ORDER BY (organization, project, environment, queue, shard, gap)
SETTINGS non_replicated_deduplication_window = 10000;
