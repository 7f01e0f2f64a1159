-- name: fill_queues
-- Fill the buckets of a range of queues in one tier. Columns without a name are the counters, or minima and sums of gauges, in their order.
INSERT INTO {table:Identifier} (organization, project, environment, queue, bucket_start, events, $COUNTERS(#), max_queue_length, max_running, max_queue_limit, max_environment_length, max_environment_running, max_environment_limit, max_paused, max_oldest_age_ms, gauge_count, min_queue_length, sum_queue_length, min_running, sum_running, min_environment_length, sum_environment_length, min_environment_running, sum_environment_running, min_oldest_age_ms, sum_oldest_age_ms, $COUNTERS(#_total), last, wait_count, wait_sum_ms, wait_max_ms, wait_sketch)
WITH
    cityHash64(number, {first:UInt32}) AS h,
    arrayMap(i -> toUInt32(cityHash64(h, i) % 5000), range({waits:UInt32})) AS waits
SELECT
    toString({organization:String}) AS organization,
    toString({project:String}) AS project,
    toString({environment:String}) AS environment,
    concat('queue-', toString({first:UInt32} + intDiv(number, {buckets:UInt32}))) AS queue,
    toDateTime({start_s:UInt32} + (number % {buckets:UInt32}) * {step_s:UInt32}, 'UTC') AS bucket_start,
    20 AS events,
    $COUNTERS(toUInt64(multiIf('#' IN ('enqueued', 'dequeued', 'acked'), 9 + cityHash64(h, '#') % 5, '#' = 'nacked', h % 3, '#' = 'dead', h % 97 = 0, 0))),
    h % 1000 AS max_queue_length,
    h % 1000 AS max_running,
    50 AS max_queue_limit,
    h % 1000 AS max_environment_length,
    h % 1000 AS max_environment_running,
    500 AS max_environment_limit,
    0 AS max_paused,
    h % 60000 AS max_oldest_age_ms,
    20 AS gauge_count,
    h % 900, h % 18000, h % 40, h % 800, h % 900, h % 18000, h % 400, h % 8000, h % 6000, h % 600000,
    $COUNTERS((number % {buckets:UInt32}) * 10 AS #_total),
    tuple(toDateTime64(bucket_start, 3, 'UTC'), 0, h % 900, h % 40, 50, h % 9000, h % 400, 500, 0, h % 60000) AS last,
    length(waits) AS wait_count,
    arraySum(waits) AS wait_sum_ms,
    arrayMax(waits) AS wait_max_ms,
    arrayReduce('quantilesDDState(0.01, 0.5, 0.95, 0.99)', waits) AS wait_sketch
FROM numbers_mt({rows:UInt64})
SETTINGS max_insert_threads = 2, optimize_on_insert = 0, min_insert_block_size_rows = 4000000, min_insert_block_size_bytes = 2000000000

-- name: fill_environment
-- Fill the buckets of one environment in one tier. Columns without a name are the counters, or minima and sums of gauges, in their order.
INSERT INTO {table:Identifier} (organization, project, environment, bucket_start, events, $COUNTERS(#), max_environment_length, max_environment_running, max_environment_limit, max_oldest_age_ms, gauge_count, min_environment_length, sum_environment_length, min_environment_running, sum_environment_running, last, wait_count, wait_sum_ms, wait_max_ms, wait_sketch)
WITH
    cityHash64(number, {first:UInt32}) AS h,
    arrayMap(i -> toUInt32(cityHash64(h, i) % 5000), range({waits:UInt32})) AS waits
SELECT
    toString({organization:String}) AS organization,
    toString({project:String}) AS project,
    toString({environment:String}) AS environment,
    toDateTime({start_s:UInt32} + (number % {buckets:UInt32}) * {step_s:UInt32}, 'UTC') AS bucket_start,
    20 AS events,
    $COUNTERS(toUInt64(multiIf('#' IN ('enqueued', 'dequeued', 'acked'), 9 + cityHash64(h, '#') % 5, '#' = 'nacked', h % 3, '#' = 'dead', h % 97 = 0, 0))),
    h % 1000 AS max_environment_length,
    h % 1000 AS max_environment_running,
    500 AS max_environment_limit,
    h % 60000 AS max_oldest_age_ms,
    20 AS gauge_count,
    h % 900, h % 18000, h % 400, h % 8000,
    tuple(toDateTime64(bucket_start, 3, 'UTC'), 0, h % 9000, h % 400, 500) AS last,
    length(waits) AS wait_count,
    arraySum(waits) AS wait_sum_ms,
    arrayMax(waits) AS wait_max_ms,
    arrayReduce('quantilesDDState(0.01, 0.5, 0.95, 0.99)', waits) AS wait_sketch
FROM numbers_mt({rows:UInt64})
SETTINGS max_insert_threads = 2, optimize_on_insert = 0, min_insert_block_size_rows = 4000000, min_insert_block_size_bytes = 2000000000

-- name: merges
-- The number of merges that run now.
SELECT count() AS merges FROM system.merges WHERE database = currentDatabase()

-- name: sizes
-- Rows and bytes on disk of every tier.
SELECT table, sum(rows) AS rows, sum(bytes_on_disk) AS bytes
FROM system.parts
WHERE active AND database = currentDatabase() AND table LIKE '%\_metrics\_%'
GROUP BY table
ORDER BY table
