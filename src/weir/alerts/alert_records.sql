-- name: list_alerts
-- The alerts of an environment, newest first, with the value that each fired at.
SELECT a.*, (
    SELECT (t.details->>'value')::float8 FROM weir.alert_timeline AS t
    WHERE t.alert_id = a.id AND t.event = 'fired' ORDER BY t.seq LIMIT 1
) AS fired_value
FROM weir.alerts AS a
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s
  AND (%(state)s::text IS NULL OR state = %(state)s)
  AND (%(queue)s::text IS NULL OR queue = %(queue)s)
  AND (%(before)s::uuid IS NULL OR id < %(before)s)
ORDER BY id DESC
LIMIT %(limit)s;

-- name: find_alert
-- One alert of an environment, with the value that it fired at.
SELECT a.*, (
    SELECT (t.details->>'value')::float8 FROM weir.alert_timeline AS t
    WHERE t.alert_id = a.id AND t.event = 'fired' ORDER BY t.seq LIMIT 1
) AS fired_value
FROM weir.alerts AS a
WHERE id = %(id)s AND organization = %(organization)s AND project = %(project)s AND environment = %(environment)s;

-- name: timeline
-- The timeline of an alert, in order.
SELECT at_ms, event, details FROM weir.alert_timeline WHERE alert_id = %(id)s ORDER BY seq;

-- name: acknowledge
-- Note who works on an alert, unless somebody does already.
UPDATE weir.alerts SET acknowledged_at_ms = %(now_ms)s, acknowledged_by = %(actor)s
WHERE id = %(id)s AND acknowledged_at_ms IS NULL;

-- name: open_alerts_of_rule
-- The alerts of a rule that are not resolved, locked against the evaluator.
SELECT * FROM weir.alerts WHERE rule_id = %(rule_id)s AND state = 'firing' ORDER BY id FOR UPDATE;

-- name: lock_alert
-- One alert that is not resolved, locked against the evaluator.
SELECT * FROM weir.alerts WHERE id = %(id)s AND state = 'firing' FOR UPDATE;

-- name: resolve_alerts
-- Resolve these alerts.
UPDATE weir.alerts SET state = 'resolved', resolved_at_ms = %(now_ms)s, unknown_since_ms = NULL
WHERE id = ANY(%(ids)s::uuid[]) AND state = 'firing';

-- name: close_memories
-- Mark the memories of these alerts as resolved, so that the evaluator does not keep them open.
UPDATE weir.alert_memories
SET status = 'resolved', open = false, since_ms = %(now_ms)s, clear_since_ms = NULL, alert_id = NULL
WHERE alert_id = ANY(%(ids)s::uuid[]);

-- name: add_timeline
-- Add a line to the timeline of an alert.
INSERT INTO weir.alert_timeline (alert_id, at_ms, event, details)
VALUES (%(alert_id)s, %(at_ms)s, %(event)s, %(details)s);

-- name: add_notification
-- Store a notification for a channel; it waits until it is sent.
INSERT INTO weir.alert_notifications (
    id, organization, project, environment, channel, kind, subject, alert_ids, document, state, created_at_ms
)
VALUES (
    %(id)s, %(organization)s, %(project)s, %(environment)s, %(channel)s, %(kind)s, %(subject)s,
    %(alert_ids)s::uuid[], %(document)s, 'waiting', %(now_ms)s
);

-- name: hold_tests
-- Let one process at a time count the tests of an environment, until its transaction ends.
SELECT pg_advisory_xact_lock(hashtext('weir.alert_tests'), hashtext(%(environment)s));

-- name: recent_tests
-- How many tests an environment has sent since a moment, and when the first of them was.
SELECT count(*) AS tests, min(created_at_ms) AS first_ms FROM weir.alert_notifications
WHERE $ENVIRONMENT AND kind = 'test' AND created_at_ms > %(since_ms)s;
