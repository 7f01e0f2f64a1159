-- name: workers
-- The processes that reported in a span, the named ones or everyone, with their sums, their maxima and their
-- newest sample.
SELECT
    t.role AS role,
    t.hostname AS hostname,
    t.worker_id AS worker_id,
    t.pid AS pid,
    sum(t.samples) AS samples,
    sum(t.event_loop_lag_us_sum) AS event_loop_lag_us_sum,
    max(t.event_loop_lag_us_max) AS event_loop_lag_us_max,
    sum(t.free_slots_sum) AS free_slots_sum,
    min(t.free_slots_min) AS free_slots_min,
    sum(t.internal_queue_sum) AS internal_queue_sum,
    max(t.internal_queue_max) AS internal_queue_max,
    sum(t.samples) AS counted_samples,
    sum(t.backoff_sum) AS backoff_sum,
    max(t.backoff_max) AS backoff_max,
    sum(t.jobs_done) AS jobs_done,
    sum(t.pushes) AS pushes,
    sum(t.pops) AS pops,
    sum(t.acks) AS acks,
    sum(t.transactions) AS transactions,
    sum(t.errors) AS errors,
    sum(t.deaths) AS deaths,
    sum(t.lag_count) AS lag_count,
    sum(t.lag_ms_sum) AS lag_ms_sum,
    max(t.lag_ms_max) AS lag_ms_max,
    max(t.last) AS last
FROM {table:Identifier} AS t
WHERE ({everyone:UInt8} = 1 OR t.worker_id IN {worker_ids:Array(String)})
    AND t.bucket_start >= toDateTime({start_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
GROUP BY t.role, t.hostname, t.worker_id, t.pid
ORDER BY last.at DESC
LIMIT {limit:UInt32}

-- name: worker_series
-- The buckets in which any of the processes has rows, summed over the processes. A process in `uncounted_ids`
-- adds its gauges, but not the figures of its work for tenants.
WITH NOT has({uncounted_ids:Array(String)}, t.worker_id) AS counted
SELECT
    intDiv(toUnixTimestamp(t.bucket_start), {step_s:UInt32}) * {step_s:UInt32} * 1000 AS bucket_ms,
    uniqExact(t.role, t.hostname, t.worker_id, t.pid) AS workers,
    sum(t.samples) AS samples,
    sum(t.event_loop_lag_us_sum) AS event_loop_lag_us_sum,
    max(t.event_loop_lag_us_max) AS event_loop_lag_us_max,
    sum(t.free_slots_sum) AS free_slots_sum,
    min(t.free_slots_min) AS free_slots_min,
    sum(t.internal_queue_sum) AS internal_queue_sum,
    max(t.internal_queue_max) AS internal_queue_max,
    sumIf(t.samples, counted) AS counted_samples,
    sumIf(t.backoff_sum, counted) AS backoff_sum,
    maxIf(t.backoff_max, counted) AS backoff_max,
    sumIf(t.jobs_done, counted) AS jobs_done,
    sumIf(t.pushes, counted) AS pushes,
    sumIf(t.pops, counted) AS pops,
    sumIf(t.acks, counted) AS acks,
    sumIf(t.transactions, counted) AS transactions,
    sumIf(t.errors, counted) AS errors,
    sumIf(t.deaths, counted) AS deaths,
    sumIf(t.lag_count, counted) AS lag_count,
    sumIf(t.lag_ms_sum, counted) AS lag_ms_sum,
    maxIf(t.lag_ms_max, counted) AS lag_ms_max
FROM {table:Identifier} AS t
WHERE ({everyone:UInt8} = 1 OR t.worker_id IN {worker_ids:Array(String)})
    AND t.bucket_start >= toDateTime({start_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
GROUP BY bucket_ms
ORDER BY bucket_ms

-- name: worker_lags
-- The lags of the messages that each process got in a span.
SELECT
    t.worker_id AS worker_id,
    $LAGS(t)
FROM {table:Identifier} AS t
WHERE ({everyone:UInt8} = 1 OR t.worker_id IN {worker_ids:Array(String)})
    AND t.bucket_start >= toDateTime({start_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
GROUP BY t.worker_id

-- name: worker_lag_series
-- The lags of the messages that the processes got, by bucket; processes in `uncounted_ids` are left out.
SELECT
    intDiv(toUnixTimestamp(t.bucket_start), {step_s:UInt32}) * {step_s:UInt32} * 1000 AS bucket_ms,
    $LAGS(t)
FROM {table:Identifier} AS t
WHERE ({everyone:UInt8} = 1 OR t.worker_id IN {worker_ids:Array(String)})
    AND NOT has({uncounted_ids:Array(String)}, t.worker_id)
    AND t.bucket_start >= toDateTime({start_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
GROUP BY bucket_ms
ORDER BY bucket_ms

-- name: worker_queue_lags
-- The lags of the messages that one process got in a span, by queue, the busiest first.
SELECT
    t.organization AS organization,
    t.project AS project,
    t.environment AS environment,
    t.queue AS queue,
    $LAGS(t)
FROM {table:Identifier} AS t
WHERE t.worker_id = {worker_id:String}
    AND t.bucket_start >= toDateTime({start_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
GROUP BY t.organization, t.project, t.environment, t.queue
ORDER BY lag_count DESC, organization, project, environment, queue
LIMIT {limit:UInt32}

-- name: gaps
-- The spans without events, by metric and shard; a gap that was recorded twice counts once. Open gaps are left out:
-- Redis tells that metrics are off, and since when.
SELECT
    metric,
    shard,
    toUnixTimestamp64Milli(from_at) AS start_ms,
    max(toUnixTimestamp64Milli(to_at)) AS end_ms,
    any(kind) AS kind
FROM metric_gaps
GROUP BY metric, shard, from_at
HAVING max(to_id) != ''
ORDER BY start_ms DESC
LIMIT 10000

-- name: landed
-- The id of the newest landed event, by metric and shard.
SELECT
    metric,
    shard,
    toUnixTimestamp64Milli(max(position).at) AS at_ms,
    max(position).sequence AS sequence
FROM ingest_offsets
GROUP BY metric, shard

-- name: window_levels
-- The lowest and highest level of every queue of some environments over some windows, and the last one before each.
-- A row is read once, however many of the windows it lies in. The next queries over windows do the same.
WITH b.bucket_start >= toDateTime(start_s, 'UTC') AS in_window
SELECT
    start_s,
    organization,
    project,
    environment,
    queue,
    minIf(b.length_last, in_window) AS backlog_low,
    maxIf(b.length_max, in_window) AS backlog_high,
    minIf(b.age_last, in_window) AS age_low,
    maxIf(b.age_max, in_window) AS age_high,
    argMax(b.length_last, b.bucket_start) AS backlog_now,
    argMax(b.age_last, b.bucket_start) AS age_now,
    argMaxIf(b.length_last, b.bucket_start, NOT in_window) AS backlog_before,
    argMaxIf(b.age_last, b.bucket_start, NOT in_window) AS age_before,
    countIf(in_window) AS buckets,
    minIf(toUnixTimestamp(b.bucket_start), in_window) * 1000 AS first_ms
FROM
(
    SELECT
        t.organization AS organization,
        t.project AS project,
        t.environment AS environment,
        t.queue AS queue,
        t.bucket_start AS bucket_start,
        max(t.max_queue_length) AS length_max,
        max(t.max_oldest_age_ms) AS age_max,
        max(tuple(t.last.at, t.last.sequence, t.last.queue_length, t.last.oldest_age_ms)) AS level,
        level.3 AS length_last,
        level.4 AS age_last
    FROM {table:Identifier} AS t
    WHERE (organization, project, environment) IN {environments:Array(Tuple(String, String, String))}
        AND t.bucket_start >= toDateTime({first_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
    GROUP BY t.organization, t.project, t.environment, t.queue, t.bucket_start
) AS b
ARRAY JOIN arrayFilter(s -> b.bucket_start >= toDateTime(s - {lookback_s:UInt32}, 'UTC'), {starts_s:Array(UInt32)}) AS start_s
GROUP BY start_s, organization, project, environment, queue

-- name: window_sums
-- The counters and waits of every queue of some environments over some windows, and its gauges at the end.
SELECT
    start_s,
    t.organization AS organization,
    t.project AS project,
    t.environment AS environment,
    t.queue AS queue,
    $COUNTERS(sum(t.#) AS #),
    sum(t.wait_count) AS wait_count,
    sum(t.wait_sum_ms) AS wait_sum_ms,
    max(tuple(t.last.at, t.last.sequence, t.last.queue_length, t.last.oldest_age_ms, t.last.running)) AS level,
    level.3 AS backlog_now,
    level.4 AS age_now,
    level.5 AS running_now
FROM {table:Identifier} AS t
ARRAY JOIN arrayFilter(s -> t.bucket_start >= toDateTime(s, 'UTC'), {starts_s:Array(UInt32)}) AS start_s
WHERE (organization, project, environment) IN {environments:Array(Tuple(String, String, String))}
    AND t.bucket_start >= toDateTime({first_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
GROUP BY start_s, t.organization, t.project, t.environment, t.queue

-- name: window_paces
-- How many messages arrived, left and were handed out per bucket, for the queues of some environments with waiting ones.
SELECT
    organization,
    project,
    environment,
    queue,
    groupArray(b.bucket_ms) AS starts_ms,
    groupArray(b.arrived) AS arrived,
    groupArray(b.departed) AS departed,
    groupArray(b.taken) AS taken
FROM
(
    SELECT
        t.organization AS organization,
        t.project AS project,
        t.environment AS environment,
        t.queue AS queue,
        toUnixTimestamp(t.bucket_start) * 1000 AS bucket_ms,
        sum(t.enqueued) AS arrived,
        $LEFT(t) AS departed,
        sum(t.dequeued) AS taken,
        max(tuple(t.last.at, t.last.sequence, t.last.queue_length)).3 AS length_last
    FROM {table:Identifier} AS t
    WHERE (organization, project, environment) IN {environments:Array(Tuple(String, String, String))}
        AND t.bucket_start >= toDateTime({start_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
    GROUP BY t.organization, t.project, t.environment, t.queue, t.bucket_start
) AS b
GROUP BY organization, project, environment, queue
HAVING argMax(b.length_last, b.bucket_ms) > 0

-- name: window_percentiles
-- The waits of every queue of some environments over some windows.
SELECT
    start_s,
    t.organization AS organization,
    t.project AS project,
    t.environment AS environment,
    t.queue AS queue,
    max(tuple(t.last.at, t.last.sequence, t.last.queue_length)).3 AS backlog_now,
    $WAITS(t)
FROM {table:Identifier} AS t
ARRAY JOIN arrayFilter(s -> t.bucket_start >= toDateTime(s, 'UTC'), {starts_s:Array(UInt32)}) AS start_s
WHERE (organization, project, environment) IN {environments:Array(Tuple(String, String, String))}
    AND t.bucket_start >= toDateTime({first_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
GROUP BY start_s, t.organization, t.project, t.environment, t.queue

-- name: has_digest
-- One row if any row of a tier has a digest of waits. An empty digest takes one byte, so a part whose column has as many
-- bytes as rows has none, and is not read. Compact parts do not tell their columns' sizes; they are small.
SELECT 1 AS one
FROM {table:Identifier}
WHERE _part NOT IN
    (
        SELECT name
        FROM system.parts_columns
        WHERE database = currentDatabase() AND table = {table_name:String} AND column = 'wait_digest'
            AND column_data_uncompressed_bytes = rows
    )
    AND isFinite(finalizeAggregation(wait_digest)[1])
LIMIT 1

-- name: window_worker_lag
-- The worst event-loop lag of any process: the calmest and the worst bucket of a window, and the newest.
SELECT
    min(b.lag_us) / 1000 AS lag_low_ms,
    max(b.lag_us) / 1000 AS lag_high_ms,
    argMax(b.lag_us, b.bucket_start) / 1000 AS lag_now_ms,
    count() AS buckets,
    min(toUnixTimestamp(b.bucket_start)) * 1000 AS first_ms
FROM
(
    SELECT t.bucket_start AS bucket_start, max(t.event_loop_lag_us_max) AS lag_us
    FROM {table:Identifier} AS t
    WHERE t.bucket_start >= toDateTime({start_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
    GROUP BY t.bucket_start
) AS b
HAVING buckets > 0

-- name: audits
-- The newest audits before a number, newest first. Drifts and sums of an audit that could not finish are null, not 0.
SELECT
    number,
    toUnixTimestamp64Milli(started_at) AS started_ms,
    a.drift AS drift,
    reason,
    if(isNull(a.drift), NULL, a.ledger_drift) AS ledger_drift,
    if(isNull(a.drift), NULL, a.tier_drift) AS tier_drift,
    if(isNull(a.drift), NULL, a.live_drift) AS live_drift,
    if(isNull(a.drift), NULL, a.queues) AS queues,
    if(isNull(a.drift), NULL, a.events) AS events,
    held_ms, took_ms
FROM metric_audits AS a
WHERE number < {before:UInt64}
ORDER BY number DESC
LIMIT {limit:UInt32}

-- name: complete_audit
-- The newest audit that compared everything; no row before the first.
SELECT number, toUnixTimestamp64Milli(started_at) AS started_ms, drift
FROM metric_audits
WHERE drift IS NOT NULL
ORDER BY number DESC
LIMIT 1

-- name: drifting_queues
-- The queues with drift in the newest complete audit, worst first.
SELECT
    organization, project, environment, queue,
    q.ledger_drift AS counters,
    tier_drift, live_drift,
    arraySum(x -> abs(x), mapValues(q.ledger_drift)) + tier_drift + live_drift AS drift
FROM queue_drift AS q FINAL
WHERE drift > 0
ORDER BY drift DESC, organization, project, environment, queue
LIMIT {limit:UInt32}

-- name: drift_of_environments
-- The queues of some environments with drift in the newest complete audit.
SELECT
    organization, project, environment, queue,
    q.ledger_drift AS counters,
    tier_drift, live_drift,
    arraySum(x -> abs(x), mapValues(q.ledger_drift)) + tier_drift + live_drift AS drift
FROM queue_drift AS q FINAL
WHERE drift > 0 AND (organization, project, environment) IN {environments:Array(Tuple(String, String, String))}
