-- part: PLACE
organization, project, environment, channel, subject

-- name: claim_notifications
-- Claim notifications that are due: the first of each channel and rule, organizations in turns. A claim counts the
-- try and puts the notification off until the try is surely over.
WITH RECURSIVE heads AS (
    (
        SELECT $PLACE, seq, id, next_at_ms FROM weir.alert_notifications WHERE state = 'waiting'
        ORDER BY $PLACE, seq LIMIT 1
    )
    UNION ALL
    SELECT following.* FROM heads AS h CROSS JOIN LATERAL (
        SELECT $PLACE, seq, id, next_at_ms FROM weir.alert_notifications
        WHERE state = 'waiting' AND ($PLACE)
            > (h.organization, h.project, h.environment, h.channel, h.subject)
        ORDER BY $PLACE, seq LIMIT 1
    ) AS following
),
in_turns AS (
    SELECT id, next_at_ms, row_number() OVER (PARTITION BY organization ORDER BY next_at_ms, seq) AS turn
    FROM heads WHERE next_at_ms <= %(now_ms)s AND organization <> ALL(%(crowded)s::text[])
),
chosen AS (
    SELECT id FROM in_turns WHERE turn <= %(each)s ORDER BY turn, next_at_ms LIMIT %(limit)s
)
UPDATE weir.alert_notifications AS n SET tries = tries + 1, next_at_ms = %(again_ms)s
FROM chosen AS c
WHERE n.id = c.id AND n.state = 'waiting' AND n.next_at_ms <= %(now_ms)s
RETURNING n.*;

-- name: put_off_notification
-- Store why a try failed and when the next one follows, unless another process has claimed the notification since.
UPDATE weir.alert_notifications SET last_error = %(error)s, next_at_ms = %(next_at_ms)s, tries = %(tries)s
WHERE id = %(id)s AND tries = %(claimed)s AND state = 'waiting';

-- name: settle_notification
-- Mark a notification as delivered, failed for good or skipped, unless it is settled already.
UPDATE weir.alert_notifications SET state = %(state)s, settled_at_ms = %(now_ms)s, last_error = %(error)s
WHERE id = %(id)s AND state = 'waiting';

-- name: withhold
-- Note the alerts that were over before the first try, before anything is sent.
UPDATE weir.alert_notifications SET withheld = %(alerts)s::uuid[] WHERE id = %(id)s;

-- name: withheld_before
-- Which of these alerts a channel was never told of, because they were over before.
SELECT DISTINCT told.id FROM weir.alert_notifications AS n CROSS JOIN LATERAL unnest(n.withheld) AS told (id)
WHERE $ENVIRONMENT AND n.channel = %(channel)s AND n.subject = %(subject)s AND n.withheld <> '{}'
  AND told.id = ANY(%(alerts)s::uuid[]);

-- name: alerts_now
-- These alerts as they are now, in the given order.
SELECT a.* FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY AS asked (id, place)
JOIN weir.alerts AS a ON a.id = asked.id
ORDER BY asked.place;

-- name: record_delivery
-- Record one attempt to send a notification.
INSERT INTO weir.alert_deliveries (
    notification_id, attempt, at_ms, duration_ms, verdict, status, error, excerpt
)
VALUES (
    %(notification_id)s, %(attempt)s, %(at_ms)s, %(duration_ms)s, %(verdict)s, %(status)s, %(error)s, %(excerpt)s
)
ON CONFLICT DO NOTHING;

-- name: list_notifications
-- The notifications of an environment, newest first, each with its attempts.
SELECT n.id, n.channel, n.kind, n.state, n.created_at_ms, n.settled_at_ms, n.last_error,
       n.document->'rule'->>'name' AS rule_name,
       jsonb_array_length(n.document->'alerts') + (n.document->>'more')::int AS alerts,
       coalesce(
           (SELECT jsonb_agg(jsonb_build_object(
               'attempt', d.attempt, 'at_ms', d.at_ms, 'duration_ms', d.duration_ms, 'verdict', d.verdict,
               'status', d.status, 'error', d.error
           ) ORDER BY d.at_ms, d.attempt) FROM weir.alert_deliveries AS d WHERE d.notification_id = n.id),
           '[]'::jsonb
       ) AS deliveries
FROM weir.alert_notifications AS n
WHERE n.organization = %(organization)s AND n.project = %(project)s AND n.environment = %(environment)s
  AND (%(before)s::uuid IS NULL OR n.id < %(before)s)
ORDER BY n.id DESC
LIMIT %(limit)s;

-- name: forget_notifications
-- Delete notifications that were settled long ago, a limited number at a time.
DELETE FROM weir.alert_notifications
WHERE id IN (
    SELECT id FROM weir.alert_notifications WHERE settled_at_ms < %(before_ms)s ORDER BY id LIMIT 1000
);
