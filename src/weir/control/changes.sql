-- name: begin_change
-- Count a change of an environment's definitions. The row stays locked until the transaction ends.
UPDATE weir.environments
SET revision = revision + 1, changed_by = pg_current_xact_id()::text::bigint
WHERE $ENVIRONMENT
RETURNING revision

-- name: lock_environment
-- Lock the row of an environment until the transaction ends: every change of it takes this lock.
SELECT revision FROM weir.environments WHERE $ENVIRONMENT FOR NO KEY UPDATE

-- name: mark_untold
-- Note that the broker is to be told about these queues, at once or after a pause.
INSERT INTO weir.untold_queues (organization, project, environment, queue, pausing, ready_at)
SELECT %(organization)s, %(project)s, %(environment)s, queue, %(pausing)s,
       clock_timestamp() + make_interval(secs => %(pause_s)s)
FROM unnest(%(queues)s::text[]) AS queue ORDER BY queue
ON CONFLICT (organization, project, environment, queue)
DO UPDATE SET pausing = untold_queues.pausing OR EXCLUDED.pausing, ready_at = EXCLUDED.ready_at,
    tries = 0

-- name: take_untold
-- Some queues of an environment of which the broker is to be told, with what PostgreSQL says about them.
SELECT u.queue, u.pausing, u.tries, d.spec::text AS spec, coalesce(d.paused, false) AS paused, e.concurrency
FROM (
    SELECT organization, project, environment, queue, pausing, tries FROM weir.untold_queues
    WHERE $ENVIRONMENT AND ready_at <= clock_timestamp()
      AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
    ORDER BY queue LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
) AS u
JOIN weir.environments AS e USING (organization, project, environment)
LEFT JOIN weir.queue_definitions AS d USING (organization, project, environment, queue)

-- name: drop_told
-- Forget that the broker was to be told about these queues.
DELETE FROM weir.untold_queues WHERE $ENVIRONMENT AND queue = ANY (%(queues)s::text[])

-- name: put_off
-- Tell the broker about a queue later, because it refused.
UPDATE weir.untold_queues
SET tries = tries + 1, ready_at = clock_timestamp() + make_interval(secs => %(pause_s)s)
WHERE $ENVIRONMENT AND queue = %(queue)s

-- name: count_untold
-- How many queues of an environment, or of some of its queues, the broker is to be told about now.
SELECT count(*) AS count FROM weir.untold_queues
WHERE $ENVIRONMENT AND ready_at <= clock_timestamp()
  AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))

-- name: untold_environments
-- Environments with queues of which the broker is to be told now.
SELECT organization, project, environment FROM weir.untold_queues
WHERE ready_at <= clock_timestamp()
GROUP BY organization, project, environment
ORDER BY min(ready_at)
LIMIT 100
