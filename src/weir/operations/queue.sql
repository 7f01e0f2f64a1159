-- name: add_operations
-- Add a batch; its partitions (rows of operation_lanes) are locked first, so that positions follow the commits.
WITH input AS (
    SELECT * FROM unnest(
        %(id)s::uuid[], %(organization)s::text[], %(project)s::text[], %(environment)s::text[],
        %(queue)s::text[], %(partition)s::text[], %(shard)s::int[], %(lane)s::bigint[], %(type)s::text[],
        %(priority)s::smallint[], %(payload)s::bytea[], %(messages)s::int[], %(gated)s::boolean[],
        %(timeout_ms)s::int[], %(max_retries)s::int[], %(call_lane)s::text[],
        %(first_message)s::uuid[], %(last_message)s::uuid[]
    ) WITH ORDINALITY AS t (id, organization, project, environment, queue, partition, shard, lane, type,
        priority, payload, messages, gated, timeout_ms, max_retries, call_lane, first_message, last_message, n)
), lanes AS (
    INSERT INTO weir.operation_lanes AS l (lane, priority, pending)
    SELECT lane, min(priority), count(*)::int FROM input GROUP BY lane ORDER BY lane
    ON CONFLICT (lane) DO UPDATE SET pending = l.pending + excluded.pending
    RETURNING l.lane
), counted AS MATERIALIZED (
    SELECT count(*) FROM lanes
), added AS (
    INSERT INTO weir.operations (id, organization, project, environment, queue, partition, shard, lane, type,
        priority, payload, messages, size_bytes, gated, timeout_ms, max_retries, call_lane,
        message_ids)
    SELECT id, organization, project, environment, queue, partition, shard, lane, type, priority, payload,
        messages, length(payload), gated, timeout_ms, max_retries, call_lane,
        CASE WHEN first_message IS NOT NULL THEN weir.message_ids(first_message, last_message, '[]') END
    FROM input CROSS JOIN counted
    ORDER BY n
    RETURNING id
)
-- The statement does not see its own changes to the partitions, so it adds the new operations.
SELECT (SELECT count(*) FROM added)
    + (SELECT coalesce(sum(pending), 0) FROM weir.operation_lanes WHERE pending > 0) AS depth;

-- name: hold_direct
-- Count operations whose gate could not be closed, shard by shard; returns for how long direct writes may go on.
WITH input AS (
    SELECT shard, count(*)::int AS n FROM unnest(%(shard)s::int[]) AS t (shard) GROUP BY shard ORDER BY shard
)
INSERT INTO weir.direct_leases AS d (shard, ungated, granted_until_ms)
SELECT shard, n, weir.clock_ms() + %(allowance_ms)s FROM input
-- The first operation waits for a whole allowance, whatever was granted: a keeper that could not reach this server may
-- have extended its allowance just now. From then on every keeper that asks is refused. No allowance ends later than one
-- that begins now, unless this server's clock stepped back.
ON CONFLICT (shard) DO UPDATE SET ungated = d.ungated + excluded.ungated,
    granted_until_ms = CASE WHEN d.ungated > 0 THEN least(d.granted_until_ms, weir.clock_ms() + %(allowance_ms)s)
        ELSE weir.clock_ms() + %(allowance_ms)s END
RETURNING greatest(0, d.granted_until_ms - weir.clock_ms()) AS remaining_ms;

-- name: depth
-- How many operations are not finished.
SELECT coalesce(sum(pending), 0)::bigint AS depth FROM weir.operation_lanes WHERE pending > 0;

-- name: claim_operations
-- Claim the oldest operations of partitions that nobody runs: free ones, and stuck ones past their time. A claim counts a try
-- of each. One whose last tries ended without a word is claimed alone, because it may be what ended their processes.
-- A moment that lies further ahead than any wait or claim lasts was set before this server's clock stepped back: it has passed.
WITH lane AS (
    SELECT l.lane, l.priority FROM weir.operation_lanes l
    WHERE l.pending > 0
      AND l.ready_ms NOT BETWEEN weir.clock_ms() + 1 AND weir.clock_ms() + %(longest_ms)s
      AND l.until_ms NOT BETWEEN weir.clock_ms() + 1 AND weir.clock_ms() + %(longest_ms)s
      AND NOT EXISTS (SELECT FROM weir.operations u WHERE u.lane = l.lane AND NOT u.gated)
    ORDER BY l.priority, l.turn_ms
    LIMIT %(partitions)s
    FOR UPDATE OF l SKIP LOCKED
), heads AS (
    SELECT lane.priority, o.*
    FROM lane CROSS JOIN LATERAL (
        SELECT o.id, o.timeout_ms, o.lane, o.position, o.messages, o.size_bytes, o.tries FROM weir.operations o
        WHERE o.lane = lane.lane AND o.status IN ('pending', 'processing')
        ORDER BY o.position LIMIT %(run)s
    ) AS o
    LIMIT %(total)s
), run AS (
    -- The first operations of each partition, until there are enough messages or bytes: a round must not hold up its process.
    SELECT id, timeout_ms, lane FROM (
        SELECT *, sum(messages) OVER turns - messages AS before, sum(size_bytes) OVER turns - size_bytes AS before_bytes,
            count(*) FILTER (WHERE tries >= %(suspect)s) OVER turns AS suspects, row_number() OVER turns AS turn
        FROM heads WINDOW turns AS (ORDER BY priority, position)
    ) AS h
    WHERE before < %(messages)s AND before_bytes < %(bytes)s AND (suspects = 0 OR turn = 1)
), taken AS (
    UPDATE weir.operation_lanes l
    SET owner = %(worker)s, turn_ms = weir.clock_ms(),
        until_ms = weir.clock_ms() + coalesce((SELECT max(timeout_ms) FROM run WHERE run.lane = l.lane), 0)
    FROM lane WHERE l.lane = lane.lane
    RETURNING l.lane
), claimed AS (
    UPDATE weir.operations o
    SET status = 'processing', started_ms = weir.clock_ms(), claimed_by = %(worker)s, tries = o.tries + 1
    FROM run WHERE o.id = run.id AND o.status IN ('pending', 'processing')
    RETURNING o.id, o.position, o.organization, o.project, o.environment, o.queue, o.partition, o.lane,
        o.type, o.payload, o.messages, weir.clock_ms() - o.created_ms AS age_ms, o.retry_count, o.max_retries, o.tries
)
SELECT * FROM taken LEFT JOIN claimed USING (lane) ORDER BY position;

-- name: release_partitions
-- Give back partitions that turned out to have nothing to run.
UPDATE weir.operation_lanes SET owner = NULL, until_ms = 0
WHERE lane = ANY(%(partitions)s::bigint[]) AND owner = %(worker)s;

-- name: settle_operations
-- Record what became of claimed operations, free their partitions, and tell which were still this process's.
WITH input AS (
    SELECT * FROM unnest(
        %(id)s::uuid[], %(lane)s::bigint[], %(status)s::text[], %(counted)s::boolean[], %(error)s::text[],
        %(result)s::jsonb[], %(delay_ms)s::int[]
    ) AS t (id, lane, status, counted, error, result, delay_ms)
), mine AS (
    SELECT l.lane FROM weir.operation_lanes l
    WHERE l.lane IN (SELECT lane FROM input) AND l.owner = %(worker)s
    ORDER BY l.lane FOR UPDATE
), settled AS (
    UPDATE weir.operations o
    SET status = i.status, error = coalesce(i.error, o.error),
        last_error_ms = CASE WHEN i.error IS NULL THEN o.last_error_ms ELSE weir.clock_ms() END, result = coalesce(i.result, o.result),
        retry_count = o.retry_count + i.counted::int, tries = 0,
        claimed_by = CASE WHEN i.status = 'pending' THEN NULL ELSE o.claimed_by END,
        finished_ms = CASE WHEN i.status = 'pending' THEN NULL ELSE weir.clock_ms() END
    FROM input i JOIN mine USING (lane)
    WHERE o.id = i.id AND o.status = 'processing' AND o.claimed_by = %(worker)s
    RETURNING o.id, o.lane, o.status, i.delay_ms, weir.clock_ms() - o.created_ms AS age_ms
), freed AS (
    UPDATE weir.operation_lanes l
    SET owner = NULL, until_ms = 0,
        pending = l.pending - coalesce(s.finished, 0),
        -- 0 is now, whatever the clock does next.
        ready_ms = CASE WHEN s.delay_ms > 0 THEN weir.clock_ms() + s.delay_ms ELSE 0 END
    FROM mine LEFT JOIN (
        SELECT lane, count(*) FILTER (WHERE status <> 'pending')::int AS finished, max(delay_ms) AS delay_ms
        FROM settled GROUP BY lane
    ) AS s USING (lane)
    WHERE l.lane = mine.lane
)
SELECT id, age_ms FROM settled;

-- name: still_mine
-- Which of these operations this process still holds.
SELECT o.id FROM weir.operations o JOIN weir.operation_lanes l USING (lane)
WHERE o.id = ANY(%(id)s::uuid[]) AND o.claimed_by = %(worker)s AND o.status = 'processing'
  AND l.owner = %(worker)s AND l.until_ms > weir.clock_ms();

-- name: unfinished
-- Which of these operations are still to be executed.
SELECT id FROM weir.operations WHERE id = ANY(%(id)s::uuid[]) AND status IN ('pending', 'processing');

-- name: asked_about
-- Which of these call slots an operation will still ask about; a failed one may be tried again.
SELECT DISTINCT call_lane FROM weir.operations
WHERE call_lane = ANY(%(slots)s::text[]) AND status IN ('pending', 'processing', 'failed');

-- name: ungated_operations
-- Operations whose gate is still to be closed, oldest first, locked against other keepers.
SELECT id, organization, project, environment, queue, partition, shard, messages
FROM weir.operations
WHERE NOT gated AND shard = ANY(%(shards)s::int[])
ORDER BY position LIMIT %(limit)s
FOR UPDATE SKIP LOCKED;

-- name: mark_gated
-- The gates of these operations are closed now; subtract them from the counts of their shards.
WITH gated AS (
    UPDATE weir.operations SET gated = true WHERE id = ANY(%(id)s::uuid[]) AND NOT gated RETURNING shard
)
UPDATE weir.direct_leases d SET ungated = d.ungated - g.n
FROM (SELECT shard, count(*)::int AS n FROM gated GROUP BY shard) AS g
WHERE d.shard = g.shard;

-- name: grant_direct
-- Allow direct writes to these shards for a while more, unless an operation with an open gate waits there.
INSERT INTO weir.direct_leases AS d (shard, granted_until_ms)
SELECT shard, weir.clock_ms() + %(allowance_ms)s FROM unnest(%(shards)s::int[]) AS t (shard) ORDER BY shard
ON CONFLICT (shard) DO UPDATE SET granted_until_ms = excluded.granted_until_ms
WHERE d.ungated = 0
RETURNING d.shard;

-- name: oldest_settlements
-- How long the oldest settlement of each shard waits already. One that failed for a reason of its own holds up nothing.
SELECT t.shard, weir.clock_ms() - o.created_ms AS waiting_ms
FROM unnest(%(shards)s::int[]) AS t (shard) CROSS JOIN LATERAL (
    SELECT created_ms FROM weir.operations
    WHERE shard = t.shard AND type IN ('ACK_BATCH', 'ACK_SINGLE') AND status IN ('pending', 'processing') AND retry_count = 0
    ORDER BY created_ms LIMIT 1
) AS o;

-- name: ping
-- Whether PostgreSQL answers.
SELECT weir.clock_ms() AS now_ms;

-- name: publish_rate
-- Tell the other processes how fast this one drains.
INSERT INTO weir.operation_rates (process, per_s, floor_ms, measured_ms)
VALUES (%(process)s, %(per_s)s, %(floor_ms)s, weir.clock_ms())
ON CONFLICT (process) DO UPDATE
SET per_s = excluded.per_s, floor_ms = excluded.floor_ms, measured_ms = excluded.measured_ms;

-- name: read_rate
-- How fast all other processes together drained lately.
SELECT coalesce(sum(per_s), 0) AS per_s, coalesce(avg(floor_ms), 0) AS floor_ms
FROM weir.operation_rates
WHERE process <> %(process)s AND measured_ms BETWEEN weir.clock_ms() - %(within_ms)s AND weir.clock_ms();

-- name: forget_rates
-- Drop the rates of processes that are gone, also if this server's clock stepped back since.
DELETE FROM weir.operation_rates WHERE measured_ms NOT BETWEEN weir.clock_ms() - 60000 AND weir.clock_ms();
