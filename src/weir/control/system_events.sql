-- name: publish_event
-- Append an event; the lock makes positions follow the order of commit, so that no reader skips one.
WITH locked AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(hashtext('weir.system_events')) AS held
), added AS (
    INSERT INTO weir.system_events (organization, project, environment, kind, payload, published_by)
    SELECT %(organization)s::text, %(project)s::text, %(environment)s::text, %(kind)s, %(payload)s::jsonb,
        %(published_by)s
    FROM locked
    RETURNING position
)
SELECT position, pg_notify('weir_system_events', position::text) FROM added;

-- name: last_event
-- The position of the newest system event.
SELECT coalesce(max(position), 0) AS position FROM weir.system_events;

-- name: read_events
-- System events after a position, in order.
SELECT position, organization, project, environment, kind, payload
FROM weir.system_events WHERE position > %(after)s ORDER BY position LIMIT 1000;

-- name: forget_events
-- Delete system events that every process has handled long ago, a limited number at a time.
DELETE FROM weir.system_events
WHERE position IN (
    SELECT position FROM weir.system_events WHERE created_ms < weir.clock_ms() - %(kept_ms)s::bigint
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
);
