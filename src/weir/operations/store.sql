-- part: OPERATION
id, position, type, status, priority, queue, partition, messages, size_bytes, created_ms, started_ms, finished_ms,
    claimed_by, timeout_ms, retry_count, max_retries, error, last_error_ms, result,
    coalesce(finished_ms, weir.clock_ms()) - created_ms AS latency_ms

-- name: read_operation
-- One operation of an environment.
SELECT $OPERATION
FROM weir.operations WHERE id = %(id)s AND $ENVIRONMENT;

-- name: list_operations
-- Operations of an environment, newest first, from a position downwards.
SELECT $OPERATION
FROM weir.operations
WHERE $ENVIRONMENT
  AND (%(status)s::text IS NULL OR status = %(status)s)
  AND (%(queue)s::text IS NULL OR queue = %(queue)s)
  AND (%(before)s::bigint IS NULL OR position < %(before)s)
ORDER BY position DESC LIMIT %(limit)s;

-- name: list_unfinished_pushes
-- The pushes that wait for one queue, newest first, from a position downwards.
SELECT $OPERATION
FROM weir.operations
WHERE $ENVIRONMENT
  AND queue = %(queue)s AND type = 'PUSH' AND status IN ('pending', 'processing')
  AND (%(before)s::bigint IS NULL OR position < %(before)s)
ORDER BY position DESC LIMIT %(limit)s;

-- name: count_queued_messages
-- How many messages wait in operations for one queue.
SELECT coalesce(sum(messages), 0)::bigint AS count
FROM weir.operations
WHERE $ENVIRONMENT
  AND queue = %(queue)s AND type = 'PUSH' AND status IN ('pending', 'processing');

-- name: operation_stats
-- Operations of an environment by type, priority and status; of the finished ones, the last five minutes.
SELECT type, priority, status, count(*) AS count, min(created_ms) AS oldest_ms, max(created_ms) AS newest_ms,
    avg(coalesce(finished_ms, weir.clock_ms()) - created_ms)::double precision AS avg_latency_ms
FROM weir.operations
WHERE $ENVIRONMENT
  AND (finished_ms IS NULL OR finished_ms > weir.clock_ms() - 300000)
GROUP BY type, priority, status
ORDER BY priority, type, status;

-- name: fullest_partitions
-- The partitions of an environment that have the most pushes waiting, and what the oldest of each waits for.
SELECT queue, partition, count(*) AS operations, sum(messages)::bigint AS messages,
    weir.clock_ms() - min(created_ms) AS oldest_age_ms,
    (array_agg(error ORDER BY position))[1] AS last_error, max(last_error_ms) AS last_error_at_ms
FROM weir.operations
WHERE $ENVIRONMENT
  AND status IN ('pending', 'processing') AND type = 'PUSH'
GROUP BY queue, partition
ORDER BY operations DESC, min(position)
LIMIT %(limit)s;

-- name: unfinished_by_type
-- Unfinished operations of all environments, by type.
SELECT type, count(*) AS count, weir.clock_ms() - min(created_ms) AS oldest_age_ms
FROM weir.operations WHERE status IN ('pending', 'processing') GROUP BY type;

-- name: count_failed
-- How many operations failed and are still kept, of all environments.
SELECT count(*) AS count FROM weir.operations WHERE status = 'failed';

-- name: position_of
-- How many unfinished operations stand at or before a pending one.
SELECT count(*) AS position FROM weir.operations
WHERE status IN ('pending', 'processing')
  AND position <= (SELECT position FROM weir.operations WHERE id = %(id)s);

-- name: cancel_operation
-- Take back an operation that nobody runs yet.
WITH lane AS (
    SELECT l.lane FROM weir.operation_lanes l
    JOIN weir.operations o USING (lane) WHERE o.id = %(id)s FOR UPDATE OF l
), cancelled AS (
    UPDATE weir.operations o SET status = 'cancelled', finished_ms = weir.clock_ms()
    FROM lane
    WHERE o.id = %(id)s AND o.lane = lane.lane AND o.status = 'pending' AND o.gated
      AND o.organization = %(organization)s AND o.project = %(project)s AND o.environment = %(environment)s
    RETURNING o.lane, o.queue, o.partition, o.type
), freed AS (
    UPDATE weir.operation_lanes l SET pending = l.pending - 1 FROM cancelled WHERE l.lane = cancelled.lane
)
SELECT queue, partition, type FROM cancelled;

-- name: retry_operation
-- Put a failed operation back, behind everything that is queued now.
WITH failed AS (
    SELECT o.id, o.lane, o.priority FROM weir.operations o
    WHERE o.id = %(id)s AND o.status = 'failed'
      AND o.organization = %(organization)s AND o.project = %(project)s AND o.environment = %(environment)s
    FOR UPDATE
), lane AS (
    INSERT INTO weir.operation_lanes AS l (lane, priority, pending)
    SELECT lane, priority, 1 FROM failed
    ON CONFLICT (lane) DO UPDATE SET pending = l.pending + 1
    RETURNING l.lane
)
UPDATE weir.operations o
SET status = 'pending', position = nextval(pg_get_serial_sequence('weir.operations', 'position')),
    retry_count = 0, tries = 0, started_ms = NULL, finished_ms = NULL, claimed_by = NULL
FROM failed JOIN lane USING (lane)
WHERE o.id = failed.id
RETURNING o.id;

-- name: clean_operations
-- Forget finished operations: completed and cancelled ones after a while, failed ones much later.
DELETE FROM weir.operations
-- As an array, because for a set of unknown size the planner may read the whole table.
WHERE id = ANY (ARRAY(
    SELECT id FROM weir.operations
    WHERE finished_ms < weir.clock_ms()
        - CASE WHEN status = 'failed' THEN %(failed_ms)s::bigint ELSE %(done_ms)s::bigint END
    ORDER BY finished_ms
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
));

-- name: clean_partitions
-- Forget partitions that have nothing in them.
DELETE FROM weir.operation_lanes
WHERE lane IN (
    SELECT lane FROM weir.operation_lanes
    WHERE pending = 0 AND turn_ms < weir.clock_ms() - 60000 LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) AND pending = 0;
