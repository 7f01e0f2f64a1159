-- name: totals
-- How many queues and events the ledger knows, and its sums by counter.
SELECT uniqExact(organization, project, environment, queue) AS queues, sum(events) AS events, [$COUNTERS(sum(#))] AS counted
FROM queue_ledger

-- name: accounts
-- Queues whose counts, odometers and known losses do not agree, worst first.
WITH lost AS
(
    SELECT organization, project, environment, queue, [$COUNTERS(sum(#))] AS lost
    FROM queue_losses
    GROUP BY organization, project, environment, queue
)
SELECT
    organization, project, environment, queue,
    shard,
    last_ms,
    counted,
    totals,
    if(empty(lost), [$COUNTERS(toUInt64(0))], lost) AS lost,
    arrayMap((c, t, l) -> toInt64(t) - toInt64(c) - toInt64(l), counted, totals, lost) AS drift
FROM
(
    SELECT
        organization, project, environment, queue,
        max(shard) AS shard,
        toUnixTimestamp64Milli(max(last_at)) AS last_ms,
        [$COUNTERS(sum(#))] AS counted,
        [$COUNTERS(max(#_total))] AS totals
    FROM queue_ledger
    GROUP BY organization, project, environment, queue
) AS ledger
LEFT JOIN lost USING (organization, project, environment, queue)
WHERE arrayExists(x -> x != 0, drift)
ORDER BY arraySum(arrayMap(x -> abs(x), drift)) DESC
LIMIT {limit:UInt32}

-- name: queues_of_shards
-- Every queue of some shards: the time of its newest event, its drift, and the gaps in which its losses are known.
WITH lost AS
(
    SELECT organization, project, environment, queue, groupUniqArray(gap) AS settled, [$COUNTERS(sum(#))] AS lost
    FROM queue_losses
    GROUP BY organization, project, environment, queue
)
SELECT
    organization, project, environment, queue,
    shard,
    last_ms,
    settled,
    arrayMap((c, t, l) -> toInt64(t) - toInt64(c) - toInt64(l), counted, totals, if(empty(lost), [$COUNTERS(toUInt64(0))], lost)) AS drift
FROM
(
    SELECT
        organization, project, environment, queue,
        max(shard) AS shard,
        toUnixTimestamp64Milli(max(last_at)) AS last_ms,
        [$COUNTERS(sum(#))] AS counted,
        [$COUNTERS(max(#_total))] AS totals
    FROM queue_ledger
    GROUP BY organization, project, environment, queue
) AS ledger
LEFT JOIN lost USING (organization, project, environment, queue)
WHERE has({shards:Array(UInt16)}, shard)

-- name: odometers
-- The odometers of one environment's queues, and the times of their newest events.
SELECT queue, toUnixTimestamp64Milli(max(last_at)) AS last_ms, [$COUNTERS(max(#_total))] AS totals
FROM queue_ledger
WHERE organization = {organization:String} AND project = {project:String} AND environment = {environment:String}
GROUP BY queue

-- name: environments
-- Every environment that the ledger knows.
SELECT DISTINCT organization, project, environment
FROM queue_ledger

-- name: tier_differences
-- Queues whose sums differ between tiers over a span that all of them keep.
SELECT
    organization, project, environment, queue,
    sumForEachIf(counted, tier = '5s') AS of_5s,
    sumForEachIf(counted, tier = '1m') AS of_1m,
    sumForEachIf(counted, tier = '1h') AS of_1h
FROM
(
    SELECT organization, project, environment, queue, '5s' AS tier, [$COUNTERS(sum(#))] AS counted
    FROM queue_metrics_5s
    WHERE bucket_start >= toDateTime({start_s:UInt32}, 'UTC')
    GROUP BY organization, project, environment, queue
    UNION ALL
    SELECT organization, project, environment, queue, '1m' AS tier, [$COUNTERS(sum(#))] AS counted
    FROM queue_metrics_1m
    WHERE bucket_start >= toDateTime({start_s:UInt32}, 'UTC')
    GROUP BY organization, project, environment, queue
    UNION ALL
    SELECT organization, project, environment, queue, '1h' AS tier, [$COUNTERS(sum(#))] AS counted
    FROM queue_metrics_1h
    WHERE bucket_start >= toDateTime({start_s:UInt32}, 'UTC')
    GROUP BY organization, project, environment, queue
)
GROUP BY organization, project, environment, queue
HAVING of_5s != of_1m OR of_5s != of_1h
LIMIT {limit:UInt32}

-- name: tier_sums
-- The sums of one tier over a span, all queues together.
SELECT sum(events) AS events, sum(wait_count) AS waits, [$COUNTERS(sum(#))] AS counted
FROM {table:Identifier}
WHERE bucket_start >= toDateTime({start_s:UInt32}, 'UTC')

-- name: gaps
-- The newest gaps, each with the sum of what queues lost in it according to their odometers.
SELECT
    g.metric AS metric,
    g.shard AS shard,
    g.from_id AS from_id,
    max(g.to_id) AS to_id,
    toUnixTimestamp64Milli(max(g.from_at)) AS from_ms,
    toUnixTimestamp64Milli(max(g.to_at)) AS to_ms,
    any(g.reason) AS reason,
    max(g.entries) AS entries,
    any(l.lost) AS lost
FROM metric_gaps AS g
LEFT JOIN
(
    SELECT shard, gap, [$COUNTERS(sum(#))] AS lost
    FROM queue_losses
    GROUP BY shard, gap
) AS l ON l.shard = g.shard AND l.gap = g.from_id AND g.metric = 'queue'
GROUP BY metric, shard, from_id
ORDER BY from_ms DESC
LIMIT {limit:UInt32}

-- name: rejects
-- How many events were corrected or set aside, by metric, reason and action.
SELECT metric, reason, action, sum(events) AS events
FROM metric_rejects
GROUP BY metric, reason, action
ORDER BY metric, reason
