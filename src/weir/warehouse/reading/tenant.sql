-- name: queue_series
-- The buckets of one queue that have rows, in any order, each with sums, gauges, odometers and percentiles.
-- The newest of the last gauges is found by its stream id as one number, because comparing a tuple field by field
-- took longer (0041). At most two threads: most windows lie in one or two parts.
SELECT
    intDiv(toUnixTimestamp(t.bucket_start), {step_s:UInt32}) * {step_s:UInt32} * 1000 AS bucket_ms,
    $COUNTERS(sum(t.#) AS #),
    max(t.max_queue_length) AS queue_length,
    max(t.max_running) AS running,
    max(t.max_queue_limit) AS queue_limit,
    max(t.max_paused) AS paused,
    max(t.max_oldest_age_ms) AS oldest_age_ms,
    $LOWS_AND_MEANS(t, queue_length, running, oldest_age_ms),
    argMax(
        [toUInt64(t.last.queue_length), t.last.running, t.last.queue_limit, t.last.paused, t.last.oldest_age_ms],
        bitShiftLeft(toUInt64(toUnixTimestamp64Milli(t.last.at)), 22) + t.last.sequence
    ) AS last,
    $COUNTERS(max(t.#_total) AS #_total),
    $WAITS(t)
FROM {table:Identifier} AS t
PREWHERE $TENANT AND queue = {queue:String}
    AND t.bucket_start >= toDateTime({start_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
GROUP BY bucket_ms
SETTINGS max_threads = 2

-- name: queue_seed
-- The last gauges and odometers of one queue before a moment, from a recent tier or from the hours.
-- A thousand rows, newest first, hold the newest bucket however many unmerged parts it has.
SELECT
    max(s.last) AS newest,
    [toUInt64(newest.queue_length), newest.running, newest.queue_limit, newest.paused, newest.oldest_age_ms] AS last,
    $COUNTERS(max(s.#_total) AS #_total)
FROM
(
    (
        SELECT last, $COUNTERS(#_total)
        FROM {table:Identifier}
        WHERE $TENANT AND queue = {queue:String}
            AND bucket_start < toDateTime({start_s:UInt32}, 'UTC')
            AND bucket_start >= toDateTime({lookback_s:UInt32}, 'UTC')
        ORDER BY bucket_start DESC
        LIMIT 1000
    )
    UNION ALL
    (
        SELECT last, $COUNTERS(#_total)
        FROM {hours:Identifier}
        WHERE $TENANT AND queue = {queue:String}
            AND bucket_start < toDateTime({lookback_s:UInt32}, 'UTC')
        ORDER BY bucket_start DESC
        LIMIT 1000
    )
) AS s
HAVING count() > 0

-- name: queue_exists
-- One row if the table has any row of a queue.
SELECT 1 AS one
FROM {table:Identifier}
WHERE $TENANT AND queue = {queue:String}
LIMIT 1

-- name: environment_series
-- The buckets of a whole environment that have rows, in any order, as in `queue_series`.
SELECT
    intDiv(toUnixTimestamp(t.bucket_start), {step_s:UInt32}) * {step_s:UInt32} * 1000 AS bucket_ms,
    $COUNTERS(sum(t.#) AS #),
    max(t.max_environment_length) AS environment_length,
    max(t.max_environment_running) AS environment_running,
    max(t.max_environment_limit) AS environment_limit,
    max(t.max_oldest_age_ms) AS oldest_age_ms,
    $LOWS_AND_MEANS(t, environment_length, environment_running),
    argMax(
        [t.last.environment_length, t.last.environment_running, t.last.environment_limit],
        bitShiftLeft(toUInt64(toUnixTimestamp64Milli(t.last.at)), 22) + t.last.sequence
    ) AS last,
    $WAITS(t)
FROM {table:Identifier} AS t
PREWHERE $TENANT
    AND t.bucket_start >= toDateTime({start_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
GROUP BY bucket_ms
SETTINGS max_threads = 2

-- name: environment_seed
-- The last gauges of an environment before a moment.
SELECT
    max(s.last) AS newest,
    [newest.environment_length, newest.environment_running, newest.environment_limit] AS last
FROM
(
    (
        SELECT last
        FROM {table:Identifier}
        WHERE $TENANT
            AND bucket_start < toDateTime({start_s:UInt32}, 'UTC')
            AND bucket_start >= toDateTime({lookback_s:UInt32}, 'UTC')
        ORDER BY bucket_start DESC
        LIMIT 1000
    )
    UNION ALL
    (
        SELECT last
        FROM {hours:Identifier}
        WHERE $TENANT
            AND bucket_start < toDateTime({lookback_s:UInt32}, 'UTC')
        ORDER BY bucket_start DESC
        LIMIT 1000
    )
) AS s
HAVING count() > 0

-- name: rank_queues
-- The queues of an environment with the most of one figure over a span. ClickHouse reads only the columns which the
-- figure needs, so ranking first and reading the totals of the winners after it costs less than one query (0060).
SELECT queue
FROM
(
    SELECT
        *,
        if(wait_count = 0, 0, wait_sum_ms / wait_count) AS wait_mean_ms,
        wait_percentiles[1] AS wait_p50_ms,
        wait_percentiles[2] AS wait_p95_ms,
        wait_percentiles[3] AS wait_p99_ms,
        nacked + dead + lapsed AS failed,
        if(acked + failed = 0, 0, failed / (acked + failed)) AS error_rate,
        if(queue_limit = 0, 0, 100 * running / queue_limit) AS utilization_pct
    FROM
    (
        SELECT
            t.queue AS queue,
            $COUNTERS(sum(t.#) AS #),
            max(t.max_queue_length) AS queue_length,
            max(t.max_running) AS running,
            max(t.max_queue_limit) AS queue_limit,
            max(t.max_oldest_age_ms) AS oldest_age_ms,
            $WAITS(t)
        FROM {table:Identifier} AS t
        WHERE $TENANT
            AND t.bucket_start >= toDateTime({start_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
        GROUP BY t.queue
    )
)
ORDER BY {by:Identifier} DESC, queue
LIMIT {limit:UInt32}

-- name: queue_totals
-- The counters, gauges and waits of some queues over a span.
SELECT
    t.queue AS queue,
    $COUNTERS(sum(t.#) AS #),
    max(t.max_queue_length) AS queue_length,
    max(t.max_running) AS running,
    max(t.max_queue_limit) AS queue_limit,
    max(t.max_oldest_age_ms) AS oldest_age_ms,
    max(t.last) AS last,
    $WAITS(t)
FROM {table:Identifier} AS t
WHERE $TENANT AND queue IN {queues:Array(String)}
    AND t.bucket_start >= toDateTime({start_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
GROUP BY t.queue

-- name: queue_flows
-- The counters and gauges of some queues in the three parts of a verdict: now (2), recent (1) and before that (0).
SELECT
    queue,
    multiIf(
        bucket_start >= toDateTime({now_s:UInt32}, 'UTC'), 2, bucket_start >= toDateTime({split_s:UInt32}, 'UTC'), 1, 0
    ) AS part,
    $COUNTERS(sum(b.#) AS #),
    $COUNTERS(max(b.#_total) AS #_total),
    max(b.running_max) AS running_max,
    sum(b.running_last) AS running_sum,
    count() AS buckets,
    min(toUnixTimestamp(b.bucket_start)) * 1000 AS first_ms
FROM
(
    SELECT
        t.queue AS queue,
        t.bucket_start AS bucket_start,
        $COUNTERS(sum(t.#) AS #),
        $COUNTERS(max(t.#_total) AS #_total),
        max(t.max_running) AS running_max,
        max(t.last).running AS running_last
    FROM {table:Identifier} AS t
    WHERE $TENANT AND queue IN {queues:Array(String)}
        AND t.bucket_start >= toDateTime({start_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
    GROUP BY t.queue, t.bucket_start
) AS b
GROUP BY queue, part

-- name: queue_odometers
-- The newest odometers of some queues, for queues that rested for longer than the other questions look back.
SELECT t.queue AS queue, $COUNTERS(max(t.#_total) AS #_total)
FROM {table:Identifier} AS t
WHERE $TENANT AND queue IN {queues:Array(String)}
GROUP BY t.queue

-- name: queue_paces
-- How many messages arrived, left and were handed out in each bucket of some queues, for the current rates.
SELECT
    b.queue AS queue,
    groupArray(b.bucket_ms) AS starts_ms,
    groupArray(b.arrived) AS arrived,
    groupArray(b.departed) AS departed,
    groupArray(b.taken) AS taken
FROM
(
    SELECT
        t.queue AS queue,
        toUnixTimestamp(t.bucket_start) * 1000 AS bucket_ms,
        sum(t.enqueued) AS arrived,
        $LEFT(t) AS departed,
        sum(t.dequeued) AS taken
    FROM {table:Identifier} AS t
    WHERE $TENANT AND queue IN {queues:Array(String)}
        AND t.bucket_start >= toDateTime({start_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
    GROUP BY t.queue, t.bucket_start
) AS b
GROUP BY b.queue

-- name: sparklines
-- The greatest depth of every active queue in a few wide slots of a span.
SELECT s.queue AS queue, groupArray(s.slot) AS slots, groupArray(s.depth) AS depths
FROM
(
    SELECT
        t.queue AS queue,
        intDiv(toUnixTimestamp(t.bucket_start) - {start_s:UInt32}, {slot_s:UInt32}) AS slot,
        max(t.max_queue_length) AS depth
    FROM {table:Identifier} AS t
    WHERE $TENANT
        AND t.bucket_start >= toDateTime({start_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
    GROUP BY t.queue, slot
) AS s
GROUP BY s.queue
ORDER BY s.queue
LIMIT {limit:UInt32}

-- name: own_queue_lags
-- The lags of the messages that one process got from the queues of an environment, by queue, the busiest first.
SELECT
    t.organization AS organization,
    t.project AS project,
    t.environment AS environment,
    t.queue AS queue,
    $LAGS(t)
FROM {table:Identifier} AS t
WHERE $TENANT AND t.worker_id = {worker_id:String}
    AND t.bucket_start >= toDateTime({start_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({end_s:UInt32}, 'UTC')
GROUP BY t.organization, t.project, t.environment, t.queue
ORDER BY lag_count DESC, queue
LIMIT {limit:UInt32}

-- name: environment_audits
-- The newest audits before a number, newest first, each with the drift of one environment.
SELECT
    number,
    toUnixTimestamp64Milli(a.started_at) AS started_ms,
    if(isNull(a.drift), NULL, mine.drift) AS drift,
    a.reason AS reason
FROM metric_audits AS a
LEFT JOIN
(
    SELECT number, drift
    FROM {drift_table:Identifier} FINAL
    WHERE $TENANT
) AS mine USING (number)
WHERE number < {before:UInt64}
ORDER BY number DESC
LIMIT {limit:UInt32}

-- name: environment_drifting_queues
-- The queues of one environment with drift in the newest complete audit, worst first.
SELECT
    organization, project, environment, queue,
    q.ledger_drift AS counters,
    tier_drift, live_drift,
    arraySum(x -> abs(x), mapValues(q.ledger_drift)) + tier_drift + live_drift AS drift
FROM {drift_table:Identifier} AS q FINAL
WHERE $TENANT AND drift > 0
ORDER BY drift DESC, queue
LIMIT {limit:UInt32}

-- part: LIFE
    queue,
    message_id,
    key,
    toUInt8(outcome) AS outcome,
    toUInt8(reason) AS reason,
    toUnixTimestamp64Milli(enqueued_at) AS enqueued_ms,
    toUnixTimestamp64Milli(available_at) AS available_ms,
    toUnixTimestamp64Milli(handed_out_at) AS handed_out_ms,
    toUnixTimestamp64Milli(ended_at) AS ended_ms,
    priority,
    attempts,
    arrayMap(at -> toUnixTimestamp64Milli(at), attempt_started_at) AS attempt_started_ms,
    arrayMap(at -> toUnixTimestamp64Milli(at), attempt_ended_at) AS attempt_ended_ms,
    arrayMap(word -> toUInt8(word), attempt_end) AS attempt_end,
    attempt_consumer,
    handler_ms,
    leased_ms,
    scheduled_ms,
    backoff_ms,
    blocked_ms,
    paused_ms,
    queue_limit_ms,
    environment_limit_ms,
    unasked_ms,
    turn_ms,
    unknown_ms,
    blocked_by_id,
    payload_bytes

-- name: life_by_id
-- The newest life of one message that ended in a span. The skip index finds the few granules that may hold its id.
SELECT
$LIFE
FROM {table:Identifier} AS t
WHERE $TENANT AND t.message_id = {message_id:UUID}
    AND t.bucket_start >= toDateTime({from_s:UInt32}, 'UTC') AND t.bucket_start < toDateTime({to_s:UInt32}, 'UTC')
ORDER BY t.ended_at DESC
LIMIT 1

-- name: lives_of_key
-- Lives of the messages with one key, in one queue or in all, newest end first, behind a place.
SELECT
$LIFE
FROM {table:Identifier} AS t
WHERE $TENANT AND t.key = {key:String} AND (empty({queue:String}) OR t.queue = {queue:String})
    AND (t.ended_at, t.message_id) < (fromUnixTimestamp64Milli({before_ms:Int64}, 'UTC'), {before_id:UUID})
ORDER BY t.ended_at DESC, t.message_id DESC
LIMIT {limit:UInt32}

-- name: lives_of_queue
-- Lives of one queue that ended in a span, newest end first, behind a place.
SELECT
$LIFE
FROM {table:Identifier} AS t
WHERE $TENANT AND t.queue = {queue:String}
    AND t.ended_at >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND t.ended_at < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND (empty({outcomes:Array(String)}) OR has({outcomes:Array(String)}, toString(t.outcome)))
    AND (t.ended_at, t.message_id) < (fromUnixTimestamp64Milli({before_ms:Int64}, 'UTC'), {before_id:UUID})
ORDER BY t.ended_at DESC, t.message_id DESC
LIMIT {limit:UInt32}

-- part: KEY_WAITS
SELECT
    t.key AS key,
    intDiv(toUnixTimestamp64Milli(t.ended_at) - {from_ms:Int64}, {step_ms:Int64}) AS slot,
    count() AS messages,
    sum(t.blocked_ms + t.paused_ms + t.queue_limit_ms + t.environment_limit_ms + t.unasked_ms + t.turn_ms + t.unknown_ms)
        AS waited_ms,
    sum(t.leased_ms) AS leased_ms
FROM {table:Identifier} AS t
WHERE $TENANT AND t.queue = {queue:String} AND t.key != ''
    AND t.ended_at >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND t.ended_at < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
GROUP BY t.key, slot

-- name: keys_by_use
-- The keys of a queue whose messages waited longest, and the keys whose messages were leased longest.
SELECT
    key,
    messages,
    mean_wait_ms,
    leased_ms,
    keys,
    leased_of_all_ms,
    by_wait <= {limit:UInt32} AS is_waiting,
    by_lease <= {limit:UInt32} AS is_taking
FROM
(
    SELECT
        key,
        key_messages AS messages,
        key_waited_ms / key_messages AS mean_wait_ms,
        key_leased_ms AS leased_ms,
        count() OVER () AS keys,
        sum(key_leased_ms) OVER () AS leased_of_all_ms,
        row_number() OVER (ORDER BY key_waited_ms / key_messages DESC, key) AS by_wait,
        row_number() OVER (ORDER BY key_leased_ms DESC, key) AS by_lease
    FROM
    (
        SELECT
            key,
            sum(w.messages) AS key_messages,
            sum(w.waited_ms) AS key_waited_ms,
            sum(w.leased_ms) AS key_leased_ms
        FROM
        (
$KEY_WAITS
        ) AS w
        GROUP BY key
    )
)
WHERE by_wait <= {limit:UInt32} OR by_lease <= {limit:UInt32}
ORDER BY key

-- name: fairness_of_keys
-- Jain's index of the mean waits of the keys of a queue, in each slot of a span that has any.
SELECT
    slot,
    count() AS keys,
    sum(m.mean_wait_ms) AS wait_ms,
    sum(m.mean_wait_ms * m.mean_wait_ms) AS squares,
    if(squares = 0, 1, wait_ms * wait_ms / (keys * squares)) AS fairness
FROM
(
    SELECT w.slot AS slot, w.waited_ms / w.messages AS mean_wait_ms
    FROM
    (
$KEY_WAITS
    ) AS w
) AS m
GROUP BY slot
ORDER BY slot

-- name: log_places
-- The places of the next messages in the log of a queue, behind a place, with the bytes of their headers and payloads.
SELECT
    toUnixTimestamp64Milli(t.ended_at) AS ended_ms,
    t.number AS number,
    length(t.headers) + t.payload_bytes AS bytes
FROM {table:Identifier} AS t
WHERE $TENANT AND t.queue = {queue:String}
    AND t.ended_at >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND t.ended_at < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND (t.ended_at, t.number) > (fromUnixTimestamp64Milli({after_ms:Int64}, 'UTC'), {after_number:UInt64})
    AND (empty({key:String}) OR t.key = {key:String})
    AND t.kept_until > toDateTime({now_s:UInt32}, 'UTC')
ORDER BY t.ended_at, t.number
LIMIT {limit:UInt32}

-- name: log_messages
-- The messages in the log of a queue from one place, exclusive, to another, with all that they carried.
SELECT
$LIFE,
    t.number AS number,
    toUnixTimestamp(t.kept_until) AS kept_until_s,
    t.left_out AS left_out,
    t.idempotency_key AS idempotency_key,
    t.headers AS headers,
    base64Encode(t.payload) AS payload
FROM {table:Identifier} AS t
WHERE $TENANT AND t.queue = {queue:String}
    AND t.ended_at >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND t.ended_at <= fromUnixTimestamp64Milli({until_ms:Int64}, 'UTC')
    AND (t.ended_at, t.number) > (fromUnixTimestamp64Milli({after_ms:Int64}, 'UTC'), {after_number:UInt64})
    AND (t.ended_at, t.number) <= (fromUnixTimestamp64Milli({until_ms:Int64}, 'UTC'), {until_number:UInt64})
    AND (empty({key:String}) OR t.key = {key:String})
    AND t.kept_until > toDateTime({now_s:UInt32}, 'UTC')
ORDER BY t.ended_at, t.number

-- name: log_account
-- How many messages of a span are in the log of a queue, and the first and the last number among them.
SELECT count() AS messages, min(t.number) AS first, max(t.number) AS last
FROM {table:Identifier} AS t
WHERE $TENANT AND t.queue = {queue:String}
    AND t.ended_at >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND t.ended_at < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND t.kept_until > toDateTime({now_s:UInt32}, 'UTC')
