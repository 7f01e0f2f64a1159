-- What is known to be wrong with each queue. A gap explains only what goes beyond it.
CREATE TABLE IF NOT EXISTS queue_drift
(
    organization String CODEC(ZSTD(1)),
    project String CODEC(ZSTD(1)),
    environment String CODEC(ZSTD(1)),
    queue String CODEC(ZSTD(1)),
    last_at DateTime64(3, 'UTC'),
    audit UInt64,
    ledger_drift Map(LowCardinality(String), Int64),
    tier_drift UInt64,
    live_drift UInt64
)
ENGINE = ReplacingMergeTree(last_at)
ORDER BY (organization, project, environment, queue)
SETTINGS non_replicated_deduplication_window = 10000;

-- The history of audits. An audit without a drift could not finish, and says why.
CREATE TABLE IF NOT EXISTS metric_audits
(
    number UInt64,
    started_at DateTime64(3, 'UTC'),
    drift Nullable(UInt64),
    reason String,
    ledger_drift UInt64,
    tier_drift UInt64,
    live_drift UInt64,
    queues UInt64,
    events UInt64,
    held_ms UInt32,
    took_ms UInt32
)
ENGINE = ReplacingMergeTree
ORDER BY number
TTL toDateTime(started_at) + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 10000;

-- The drift of each environment in each audit; an environment without drift has no row.
CREATE TABLE IF NOT EXISTS environment_drift
(
    organization String CODEC(ZSTD(1)),
    project String CODEC(ZSTD(1)),
    environment String CODEC(ZSTD(1)),
    number UInt64,
    started_at DateTime64(3, 'UTC'),
    drift UInt64
)
ENGINE = ReplacingMergeTree
ORDER BY (organization, project, environment, number)
TTL toDateTime(started_at) + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 10000;
