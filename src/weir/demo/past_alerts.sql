-- name: has_alerts
-- Whether an environment has any alert.
SELECT EXISTS (SELECT FROM weir.alerts WHERE $ENVIRONMENT) AS found

-- name: add_past_alert
-- Store an alert that is over.
INSERT INTO weir.alerts (
    id, rule_id, organization, project, environment, rule, queue, state, fired_at_ms, resolved_at_ms, value, peak,
    cause, verdict, notified
)
VALUES (
    %(id)s, %(rule_id)s, %(organization)s, %(project)s, %(environment)s, %(rule)s, %(queue)s, 'resolved',
    %(fired_at_ms)s, %(resolved_at_ms)s, %(value)s, %(value)s, %(cause)s, %(verdict)s, true
)
