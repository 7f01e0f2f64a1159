-- part: ROUND
in_turns AS (
    SELECT id, due_ms,
        row_number() OVER (PARTITION BY organization, project, environment ORDER BY due_ms, id) AS turn
    FROM due
), first AS (
    SELECT id, turn, due_ms FROM in_turns ORDER BY turn, due_ms, id LIMIT 4 * %(limit)s
), chosen AS (
    SELECT s.id, s.organization, s.project, s.environment, f.turn, f.due_ms
    FROM weir.schedules AS s JOIN first AS f ON f.id = s.id
    ORDER BY f.turn, f.due_ms, f.id LIMIT %(limit)s
    FOR UPDATE OF s SKIP LOCKED
), begun AS (
    INSERT INTO weir.schedule_rounds (id, schedules, begun_at_ms)
    SELECT %(round)s, array_agg(id), %(now_ms)s FROM chosen HAVING count(*) > 0
)
SELECT id, organization, project, environment FROM chosen ORDER BY turn, due_ms, id

-- name: put_schedule
-- Create a schedule, or replace the schedule with that id: what it says, and how far it is.
INSERT INTO weir.schedules (
    id, organization, project, environment, name, queue, cron, every_ms, timezone, payload, missed, overlap, origin,
    app, paused, created_at_ms, updated_at_ms, last_tick_ms, next_tick_ms, due_ms
)
VALUES (
    %(id)s, %(organization)s, %(project)s, %(environment)s, %(name)s, %(queue)s, %(cron)s, %(every_ms)s,
    %(timezone)s, %(payload)s, %(missed)s, %(overlap)s, %(origin)s, %(app)s, %(paused)s, %(now_ms)s, %(now_ms)s,
    %(last_tick_ms)s, %(next_tick_ms)s, %(due_ms)s
)
ON CONFLICT (id) DO UPDATE SET
    queue = EXCLUDED.queue, cron = EXCLUDED.cron, every_ms = EXCLUDED.every_ms, timezone = EXCLUDED.timezone,
    payload = EXCLUDED.payload, missed = EXCLUDED.missed, overlap = EXCLUDED.overlap, origin = EXCLUDED.origin,
    app = EXCLUDED.app, paused = EXCLUDED.paused, updated_at_ms = EXCLUDED.updated_at_ms, last_tick_ms = EXCLUDED.last_tick_ms,
    next_tick_ms = EXCLUDED.next_tick_ms, due_ms = EXCLUDED.due_ms, refused_ms = %(refused_ms)s,
    refusals = 0, tries = 0, problem = NULL;

-- name: lock_schedule
-- One schedule of an environment, locked until the transaction ends.
SELECT * FROM weir.schedules WHERE $ENVIRONMENT AND name = %(name)s FOR UPDATE;

-- name: find_schedule
-- One schedule of an environment.
SELECT * FROM weir.schedules WHERE $ENVIRONMENT AND name = %(name)s;

-- name: lock_schedules
-- The schedules of an environment by name, locked until the transaction ends.
SELECT * FROM weir.schedules WHERE $ENVIRONMENT ORDER BY name FOR UPDATE;

-- name: list_schedules
-- The schedules of an environment by name.
SELECT * FROM weir.schedules WHERE $ENVIRONMENT ORDER BY name;

-- name: count_schedules
-- How many schedules an environment has.
SELECT count(*) AS schedules FROM weir.schedules WHERE $ENVIRONMENT;

-- name: delete_schedule
-- Delete a schedule and its runs.
DELETE FROM weir.schedules WHERE id = %(id)s;

-- name: ask_run
-- Ask for a run. A second request before the run went out changes nothing.
UPDATE weir.schedules
SET asked_ms = coalesce(asked_ms, %(now_ms)s), due_ms = least(due_ms, %(now_ms)s)
WHERE id = %(id)s
RETURNING asked_ms;

-- name: begin_round
-- Choose schedules with something to do, environments in turns, and write down that a round works on them. Rows that
-- another round has locked are passed over.
WITH due AS (
    SELECT id, organization, project, environment, due_ms FROM weir.schedules
    WHERE due_ms <= %(now_ms)s AND tries = 0
    ORDER BY due_ms, id LIMIT %(window)s
), $ROUND;

-- name: begin_round_alone
-- The same for schedules that were tried before: one of them may be what ended a process, so it is alone.
WITH due AS (
    SELECT id, organization, project, environment, due_ms FROM weir.schedules
    WHERE due_ms <= %(now_ms)s AND tries > 0
    ORDER BY due_ms, id LIMIT %(window)s
), $ROUND;

-- name: lock_due
-- Lock these schedules, except for schedules that another process works on or has worked on.
SELECT * FROM weir.schedules
WHERE id = ANY(%(ids)s::uuid[]) AND due_ms <= %(now_ms)s
ORDER BY due_ms, id
FOR UPDATE SKIP LOCKED;

-- name: end_round
-- A round is over: it did not end its process.
DELETE FROM weir.schedule_rounds WHERE id = %(round)s;

-- name: count_lost_rounds
-- Count a try of each schedule of the rounds whose process has ended or hangs.
WITH lost AS (
    DELETE FROM weir.schedule_rounds WHERE begun_at_ms < %(before_ms)s RETURNING schedules
)
UPDATE weir.schedules SET tries = tries + 1
WHERE id IN (SELECT unnest(schedules) FROM lost);

-- name: put_off
-- Store why a schedule could not be worked on, and when it is tried again; or pause it after the last try.
UPDATE weir.schedules
SET tries = %(tries)s, problem = %(problem)s, paused = paused OR %(paused)s,
    due_ms = CASE WHEN %(paused)s THEN NULL ELSE %(due_ms)s::bigint END
WHERE id = %(id)s AND due_ms <= %(now_ms)s;

-- name: next_due
-- When the next schedule has something to do.
SELECT min(due_ms) AS due_ms FROM weir.schedules WHERE due_ms IS NOT NULL;

-- name: advance
-- Store how far a schedule is.
UPDATE weir.schedules
SET last_tick_ms = %(last_tick_ms)s, next_tick_ms = %(next_tick_ms)s, asked_ms = %(asked_ms)s,
    refused_ms = %(refused_ms)s, refusals = %(refusals)s, problem = %(problem)s,
    due_ms = %(due_ms)s, tries = 0
WHERE id = %(id)s;

-- name: put_run
-- Record what became of a tick. Skipped ticks join the run before, if that was skipped for the same reason.
WITH before AS (
    SELECT tick_ms FROM weir.schedule_runs WHERE schedule_id = %(schedule_id)s ORDER BY tick_ms DESC LIMIT 1
), joined AS (
    UPDATE weir.schedule_runs AS r
    SET tick_ms = %(tick_ms)s, ticks = r.ticks + %(ticks)s, at_ms = %(at_ms)s
    FROM before
    WHERE r.schedule_id = %(schedule_id)s AND r.tick_ms = before.tick_ms AND r.tick_ms < %(tick_ms)s
      AND r.outcome = 'skipped' AND %(outcome)s = 'skipped' AND r.reason = %(reason)s
    RETURNING r.tick_ms
)
INSERT INTO weir.schedule_runs (
    schedule_id, tick_ms, asked, outcome, ticks, reason, queue, message_id, operation_id, at_ms
)
SELECT %(schedule_id)s, %(tick_ms)s, %(asked)s, %(outcome)s, %(ticks)s, %(reason)s, %(queue)s, %(message_id)s,
    %(operation_id)s, %(at_ms)s
WHERE NOT EXISTS (SELECT FROM joined)
ON CONFLICT (schedule_id, tick_ms) DO NOTHING;

-- name: forget_runs
-- Keep the last runs of these schedules, and older ones whose messages are still followed.
DELETE FROM weir.schedule_runs AS r
USING (
    SELECT s.id, (
        SELECT tick_ms FROM weir.schedule_runs WHERE schedule_id = s.id
        ORDER BY tick_ms DESC OFFSET %(kept)s LIMIT 1
    ) AS tick_ms
    FROM unnest(%(ids)s::uuid[]) AS s (id)
) AS old
WHERE r.schedule_id = old.id AND r.tick_ms <= old.tick_ms
  AND (r.outcome <> 'pushed' OR r.ended IS NOT NULL OR r.tick_ms <= (
        SELECT tick_ms FROM weir.schedule_runs
        WHERE schedule_id = old.id AND outcome = 'pushed' AND ended IS NULL
        ORDER BY tick_ms DESC OFFSET %(followed)s LIMIT 1));

-- name: list_runs
-- The last runs of a schedule, newest first.
SELECT * FROM weir.schedule_runs WHERE schedule_id = %(id)s ORDER BY tick_ms DESC LIMIT %(limit)s;

-- name: last_runs
-- The last run of each of these schedules.
SELECT r.* FROM unnest(%(ids)s::uuid[]) AS s (id)
CROSS JOIN LATERAL (
    SELECT * FROM weir.schedule_runs WHERE schedule_id = s.id ORDER BY tick_ms DESC LIMIT 1
) AS r;

-- name: open_runs
-- The last runs of these schedules whose messages have not ended, as far as is known.
SELECT r.* FROM unnest(%(ids)s::uuid[]) AS s (id)
CROSS JOIN LATERAL (
    SELECT * FROM weir.schedule_runs
    WHERE schedule_id = s.id AND outcome = 'pushed' AND ended IS NULL
    ORDER BY tick_ms DESC LIMIT %(limit)s
) AS r;

-- name: operation_states
-- The states of these operations. An operation that completed long ago has no row any more.
SELECT id, status FROM weir.operations WHERE id = ANY(%(ids)s::uuid[]);

-- name: end_runs
-- Record how the messages of runs ended.
UPDATE weir.schedule_runs AS r SET ended = e.ended
FROM unnest(%(ids)s::uuid[], %(ticks)s::bigint[], %(ended)s::text[]) AS e (schedule_id, tick_ms, ended)
WHERE r.schedule_id = e.schedule_id AND r.tick_ms = e.tick_ms;
