-- part: ACCOUNTS
SELECT
    organization, project, environment, queue,
    shard,
    last_ms,
    counted,
    totals,
    settled,
    if(empty(settled), -1, toInt64(arrayMax(arrayMap(id -> toUInt64(splitByChar('-', id)[1]), settled)))) AS settled_ms,
    if(empty(lost), [$COUNTERS(toUInt64(0))], lost) AS lost,
    arrayMap(
        (c, t, l) -> toInt64(t) - toInt64(c) - toInt64(l),
        counted, totals, if(empty(lost), [$COUNTERS(toUInt64(0))], lost)
    ) AS drift
FROM
(
    SELECT
        organization, project, environment, queue,
        max(shard) AS shard,
        toUnixTimestamp64Milli(max(last_at)) AS last_ms,
        [$COUNTERS(sum(#))] AS counted,
        [$COUNTERS(max(#_total))] AS totals
    FROM {ledger:Identifier}
    GROUP BY organization, project, environment, queue
) AS ledger
LEFT JOIN
(
    SELECT organization, project, environment, queue, groupUniqArray(gap) AS settled, [$COUNTERS(sum(#))] AS lost
    FROM queue_losses
    GROUP BY organization, project, environment, queue
) AS losses USING (organization, project, environment, queue)

-- name: totals
-- How many queues and events the ledger knows.
SELECT uniqExact(organization, project, environment, queue) AS queues, sum(events) AS events
FROM {ledger:Identifier}

-- name: accounts
-- Queues whose counts, odometers and known losses do not agree, worst first.
SELECT *
FROM ($ACCOUNTS)
WHERE arrayExists(x -> x != 0, drift)
ORDER BY arraySum(arrayMap(x -> abs(x), drift)) DESC
LIMIT {limit:UInt32}

-- name: queues_after_gaps
-- Every queue that sent an event after a gap in which its losses are not known yet; `known` is the drift before the gap.
SELECT
    organization, project, environment, queue,
    shard,
    last_ms,
    settled,
    drift,
    arrayMap(name -> ledger_drift[name], [$COUNTERS('#')]) AS known
FROM ($ACCOUNTS) AS accounts
LEFT JOIN
(
    SELECT organization, project, environment, queue, ledger_drift
    FROM queue_drift FINAL
) AS before USING (organization, project, environment, queue)
WHERE arrayExists(
    (s, id, end_ms) -> s = shard AND end_ms <= last_ms AND NOT has(settled, id),
    {shards:Array(UInt16)}, {gaps:Array(String)}, {ends_ms:Array(UInt64)}
)

-- name: remember_drift
-- Note the drift of the queues of one shard that have sent no event since a moment, before a gap adds to it. Queues whose
-- losses in an earlier gap are still to be settled are left out, because their drift is not all unexplained.
INSERT INTO queue_drift
WITH
(
    SELECT groupArray((toUnixTimestamp64Milli(from_at), toUnixTimestamp64Milli(to_at)))
    FROM metric_gaps
    WHERE metric = 'queue' AND shard = {shard:UInt16} AND kind != 'unreadable' AND from_at < fromUnixTimestamp64Milli({until_ms:Int64})
) AS gaps
SELECT
    organization, project, environment, queue,
    fromUnixTimestamp64Milli(last_ms, 'UTC') AS last_at,
    0 AS audit,
    CAST(mapFromArrays([$COUNTERS('#')], drift), 'Map(LowCardinality(String), Int64)') AS ledger_drift,
    tier_drift,
    live_drift
FROM ($ACCOUNTS) AS accounts
LEFT JOIN
(
    SELECT organization, project, environment, queue, ledger_drift AS known, tier_drift, live_drift
    FROM queue_drift FINAL
) AS before USING (organization, project, environment, queue)
WHERE shard = {shard:UInt16} AND last_ms <= {until_ms:Int64}
    AND NOT arrayExists(gap -> gap.1 > settled_ms AND gap.2 <= last_ms, gaps)
    AND (arrayExists(x -> x != 0, drift) OR arrayExists(x -> x != 0, mapValues(known)))
SETTINGS insert_deduplicate = 0

-- name: known_drift
-- Every queue whose newest noted drift is not zero.
SELECT
    organization, project, environment, queue,
    toUnixTimestamp64Milli(last_at) AS last_ms,
    arrayMap(name -> q.ledger_drift[name], [$COUNTERS('#')]) AS ledger_drift,
    tier_drift,
    live_drift
FROM queue_drift AS q FINAL
WHERE tier_drift > 0 OR live_drift > 0 OR arrayExists(x -> x != 0, mapValues(q.ledger_drift))

-- name: newest_number
-- The number of the newest audit; 0 before the first.
SELECT max(number) AS number
FROM metric_audits

-- name: odometers
-- The odometers of the queues of some environments, and the times of their newest events.
SELECT
    organization, project, environment, queue,
    toUnixTimestamp64Milli(max(last_at)) AS last_ms,
    [$COUNTERS(max(#_total))] AS totals
FROM {ledger:Identifier}
WHERE (organization, project, environment) IN {environments:Array(Tuple(String, String, String))}
GROUP BY organization, project, environment, queue

-- name: now
-- The time of ClickHouse, by which rows expire.
SELECT toUnixTimestamp(now()) AS now_s

-- name: environments
-- Every environment that the ledger knows.
SELECT DISTINCT organization, project, environment
FROM {ledger:Identifier}

-- name: queue_tier_drift
-- Queues whose three tiers do not hold the same counts over a span that all tiers keep, worst first.
SELECT
    organization, project, environment, queue,
    arraySum(
        (fine, minutes, hours) -> abs(toInt64(fine) - toInt64(minutes)) + abs(toInt64(fine) - toInt64(hours)),
        arrayResize(sumForEachIf(counted, tier = 0), {width:UInt8}),
        arrayResize(sumForEachIf(counted, tier = 1), {width:UInt8}),
        arrayResize(sumForEachIf(counted, tier = 2), {width:UInt8})
    ) AS drift
FROM
(
    SELECT organization, project, environment, queue, 0 AS tier, [sum(events), sum(wait_count), $COUNTERS(sum(#))] AS counted
    FROM {queues_5s:Identifier}
    WHERE bucket_start >= toDateTime({start_s:UInt32}, 'UTC')
    GROUP BY organization, project, environment, queue
    UNION ALL
    SELECT organization, project, environment, queue, 1 AS tier, [sum(events), sum(wait_count), $COUNTERS(sum(#))] AS counted
    FROM {queues_1m:Identifier}
    WHERE bucket_start >= toDateTime({start_s:UInt32}, 'UTC')
    GROUP BY organization, project, environment, queue
    UNION ALL
    SELECT organization, project, environment, queue, 2 AS tier, [sum(events), sum(wait_count), $COUNTERS(sum(#))] AS counted
    FROM {queues_1h:Identifier}
    WHERE bucket_start >= toDateTime({start_s:UInt32}, 'UTC')
    GROUP BY organization, project, environment, queue
)
GROUP BY organization, project, environment, queue
HAVING drift > 0
ORDER BY drift DESC
LIMIT {limit:UInt32}

-- name: environment_tier_drift
-- Environments whose three tiers do not hold the same counts as the finest tier of their queues, worst first.
SELECT
    organization, project, environment,
    arraySum(
        (queues, fine, minutes, hours) -> abs(toInt64(queues) - toInt64(fine)) + abs(toInt64(queues) - toInt64(minutes))
            + abs(toInt64(queues) - toInt64(hours)),
        arrayResize(sumForEachIf(counted, tier = 0), {width:UInt8}),
        arrayResize(sumForEachIf(counted, tier = 1), {width:UInt8}),
        arrayResize(sumForEachIf(counted, tier = 2), {width:UInt8}),
        arrayResize(sumForEachIf(counted, tier = 3), {width:UInt8})
    ) AS drift
FROM
(
    SELECT organization, project, environment, 0 AS tier, [sum(events), sum(wait_count), $COUNTERS(sum(#))] AS counted
    FROM {queues_5s:Identifier}
    WHERE bucket_start >= toDateTime({start_s:UInt32}, 'UTC')
    GROUP BY organization, project, environment
    UNION ALL
    SELECT organization, project, environment, 1 AS tier, [sum(events), sum(wait_count), $COUNTERS(sum(#))] AS counted
    FROM {environments_5s:Identifier}
    WHERE bucket_start >= toDateTime({start_s:UInt32}, 'UTC')
    GROUP BY organization, project, environment
    UNION ALL
    SELECT organization, project, environment, 2 AS tier, [sum(events), sum(wait_count), $COUNTERS(sum(#))] AS counted
    FROM {environments_1m:Identifier}
    WHERE bucket_start >= toDateTime({start_s:UInt32}, 'UTC')
    GROUP BY organization, project, environment
    UNION ALL
    SELECT organization, project, environment, 3 AS tier, [sum(events), sum(wait_count), $COUNTERS(sum(#))] AS counted
    FROM {environments_1h:Identifier}
    WHERE bucket_start >= toDateTime({start_s:UInt32}, 'UTC')
    GROUP BY organization, project, environment
)
GROUP BY organization, project, environment
HAVING drift > 0
ORDER BY drift DESC
LIMIT {limit:UInt32}

-- name: tier_sums
-- The sums of one tier over a span, all queues together.
SELECT sum(events) AS events, sum(wait_count) AS waits, [$COUNTERS(sum(#))] AS counted
FROM {table:Identifier}
WHERE bucket_start >= toDateTime({start_s:UInt32}, 'UTC')

-- name: gaps
-- The newest gaps, each with the sum of what queues lost in it according to their odometers. An open gap ends now.
SELECT
    g.metric AS metric,
    g.shard AS shard,
    g.from_id AS from_id,
    any(g.kind) AS kind,
    max(g.to_id) AS to_id,
    max(g.to_id) = '' AS open,
    toUnixTimestamp64Milli(max(g.from_at)) AS from_ms,
    toUnixTimestamp64Milli(if(open, now64(3), max(g.to_at))) AS to_ms,
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

-- name: switch_gaps
-- The gaps of metrics that were switched off, with their ends; the end of an open gap is empty.
SELECT metric, shard, from_id, max(to_id) AS to_id
FROM metric_gaps
WHERE kind = {kind:String}
GROUP BY metric, shard, from_id

-- name: rejects
-- How many events were corrected or set aside, by metric, reason and action.
SELECT metric, reason, action, sum(events) AS events
FROM metric_rejects
GROUP BY metric, reason, action
ORDER BY metric, reason

-- name: life_accounts
-- Queues whose landed lives, odometer and known losses do not agree, worst first.
SELECT
    organization, project, environment, queue,
    shard,
    last_ms,
    settled,
    toInt64(total) - toInt64(counted) - toInt64(lost) AS drift
FROM
(
    SELECT
        organization, project, environment, queue,
        max(shard) AS shard,
        toUnixTimestamp64Milli(max(last_at)) AS last_ms,
        sum(lives) AS counted,
        max(lives_total) AS total
    FROM {lives:Identifier}
    GROUP BY organization, project, environment, queue
) AS ledger
LEFT JOIN
(
    SELECT organization, project, environment, queue, groupUniqArray(gap) AS settled, sum(lives) AS lost
    FROM life_losses
    GROUP BY organization, project, environment, queue
) AS losses USING (organization, project, environment, queue)
WHERE drift != 0
ORDER BY abs(drift) DESC
LIMIT {limit:UInt32}

-- name: lives_landed
-- How many lives have landed.
SELECT sum(lives) AS lives
FROM {lives:Identifier}
