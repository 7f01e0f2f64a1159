-- name: waiting_notifications
-- The oldest notifications that are not in the queue and that no other relay has locked.
SELECT id FROM weir.alert_notifications WHERE state = 'waiting' ORDER BY id LIMIT %(limit)s
FOR UPDATE SKIP LOCKED;

-- name: mark_queued
-- Mark these notifications as moved into the queue.
UPDATE weir.alert_notifications SET state = 'queued' WHERE id = ANY(%(ids)s::uuid[]) AND state = 'waiting';

-- name: find_notification
-- One notification.
SELECT * FROM weir.alert_notifications WHERE id = %(id)s;

-- name: settle_notification
-- Mark a notification as delivered or failed for good.
UPDATE weir.alert_notifications SET state = %(state)s, settled_at_ms = %(now_ms)s, last_error = %(error)s
WHERE id = %(id)s;

-- name: note_error
-- Store the error of an attempt; another attempt follows.
UPDATE weir.alert_notifications SET last_error = %(error)s WHERE id = %(id)s;

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
