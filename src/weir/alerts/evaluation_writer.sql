-- name: memories
-- The memories of all rules.
SELECT * FROM weir.alert_memories;

-- name: put_memories
-- Create or change memories of rules that still exist.
INSERT INTO weir.alert_memories (
    rule_id, queue, status, since_ms, open, clear_since_ms, last_fired_ms, evaluated_ms, alert_id
)
SELECT m.* FROM unnest(
    %(rule_id)s::uuid[], %(queue)s::text[], %(status)s::text[], %(since_ms)s::bigint[], %(open)s::boolean[],
    %(clear_since_ms)s::bigint[], %(last_fired_ms)s::bigint[], %(evaluated_ms)s::bigint[], %(alert_id)s::uuid[]
) AS m (rule_id, queue, status, since_ms, open, clear_since_ms, last_fired_ms, evaluated_ms, alert_id)
JOIN weir.alert_rules AS r ON r.id = m.rule_id
ON CONFLICT (rule_id, queue) DO UPDATE SET
    status = EXCLUDED.status, since_ms = EXCLUDED.since_ms, open = EXCLUDED.open,
    clear_since_ms = EXCLUDED.clear_since_ms, last_fired_ms = EXCLUDED.last_fired_ms,
    evaluated_ms = EXCLUDED.evaluated_ms, alert_id = EXCLUDED.alert_id;

-- name: drop_memories
-- Delete memories that would change nothing any more.
DELETE FROM weir.alert_memories AS m
USING unnest(%(rule_id)s::uuid[], %(queue)s::text[]) AS gone (rule_id, queue)
WHERE m.rule_id = gone.rule_id AND m.queue = gone.queue;

-- name: lock_rules
-- Lock these rules until the transaction ends, unless they changed or were disabled since they were read.
SELECT r.id FROM weir.alert_rules AS r
JOIN unnest(%(ids)s::uuid[], %(updated)s::bigint[]) AS w (id, updated_at_ms)
    ON r.id = w.id AND r.updated_at_ms = w.updated_at_ms
WHERE r.enabled
FOR SHARE OF r;

-- name: raise_alert
-- Store the alert of a rule that fired.
INSERT INTO weir.alerts (
    id, rule_id, organization, project, environment, rule, queue, state, fired_at_ms, value, peak, cause,
    verdict, notified
)
VALUES (
    %(id)s, %(rule_id)s, %(organization)s, %(project)s, %(environment)s, %(rule)s, %(queue)s, 'firing',
    %(fired_at_ms)s, %(value)s, %(value)s, %(cause)s, %(verdict)s, false
);

-- name: open_alerts
-- Every alert that is not resolved.
SELECT * FROM weir.alerts WHERE state = 'firing';

-- name: update_alerts
-- Store the newest value of open alerts, and since when it is unknown.
UPDATE weir.alerts AS a
SET value = n.value, peak = n.peak, unknown_since_ms = n.unknown_since_ms, notified = n.notified
FROM unnest(
    %(id)s::uuid[], %(value)s::float8[], %(peak)s::float8[], %(unknown_since_ms)s::bigint[],
    %(notified)s::boolean[]
) AS n (id, value, peak, unknown_since_ms, notified)
WHERE a.id = n.id AND a.state = 'firing';

-- name: silences_at
-- The silences that are in effect at a moment.
SELECT * FROM weir.alert_silences WHERE starts_at_ms <= %(now_ms)s AND ends_at_ms > %(now_ms)s;
