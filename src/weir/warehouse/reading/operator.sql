-- name: workers
-- Every process that reported in a span, with its sums, maxima and the last sign of life.
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
    max(t.max_pool_size) AS pool_size_max,
    sum(t.internal_queue_sum) AS internal_queue_sum,
    max(t.internal_queue_max) AS internal_queue_max,
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
WHERE t.bucket_start >= toDateTime({start_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
GROUP BY t.role, t.hostname, t.worker_id, t.pid
ORDER BY last.at DESC
LIMIT {limit:UInt32}

-- name: worker_series
-- The buckets that have rows, of every process together or of one.
SELECT
    intDiv(toUnixTimestamp(t.bucket_start), {step_s:UInt32}) * {step_s:UInt32} * 1000 AS bucket_ms,
    uniqExact(t.role, t.hostname, t.worker_id, t.pid) AS workers,
    sum(t.samples) AS samples,
    sum(t.event_loop_lag_us_sum) AS event_loop_lag_us_sum,
    max(t.event_loop_lag_us_max) AS event_loop_lag_us_max,
    sum(t.free_slots_sum) AS free_slots_sum,
    min(t.free_slots_min) AS free_slots_min,
    max(t.max_pool_size) AS pool_size_max,
    sum(t.internal_queue_sum) AS internal_queue_sum,
    max(t.internal_queue_max) AS internal_queue_max,
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
WHERE ({worker_id:String} = '' OR t.worker_id = {worker_id:String})
    AND t.bucket_start >= toDateTime({start_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
GROUP BY bucket_ms
ORDER BY bucket_ms

-- name: gaps
-- The spans in which events were lost, by metric and shard; a gap that was recorded twice counts once.
SELECT
    metric,
    shard,
    toUnixTimestamp64Milli(from_at) AS start_ms,
    max(toUnixTimestamp64Milli(to_at)) AS end_ms
FROM metric_gaps
GROUP BY metric, shard, from_at
ORDER BY start_ms DESC
LIMIT 10000

-- name: landed
-- How far each shard of each metric has landed: the id of its newest event.
SELECT
    metric,
    shard,
    toUnixTimestamp64Milli(max(position).at) AS at_ms,
    max(position).sequence AS sequence
FROM ingest_offsets
GROUP BY metric, shard
