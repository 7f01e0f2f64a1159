-- name: put_rule
-- Create a rule, or change the one of that id.
INSERT INTO weir.alert_rules (
    id, organization, project, environment, name, metric, operator, threshold, clear_threshold, queue,
    window_ms, cooldown_ms, auto_resolve, channels, enabled, origin, created_at_ms, updated_at_ms
)
VALUES (
    %(id)s, %(organization)s, %(project)s, %(environment)s, %(name)s, %(metric)s, %(operator)s, %(threshold)s,
    %(clear_threshold)s, %(queue)s, %(window_ms)s, %(cooldown_ms)s, %(auto_resolve)s, %(channels)s, %(enabled)s,
    %(origin)s, %(now_ms)s, %(now_ms)s
)
ON CONFLICT (id) DO UPDATE SET
    name = EXCLUDED.name, metric = EXCLUDED.metric, operator = EXCLUDED.operator,
    threshold = EXCLUDED.threshold, clear_threshold = EXCLUDED.clear_threshold, queue = EXCLUDED.queue,
    window_ms = EXCLUDED.window_ms, cooldown_ms = EXCLUDED.cooldown_ms,
    auto_resolve = EXCLUDED.auto_resolve, channels = EXCLUDED.channels, enabled = EXCLUDED.enabled,
    origin = EXCLUDED.origin, updated_at_ms = EXCLUDED.updated_at_ms;

-- name: find_rule
-- One rule of an environment.
SELECT * FROM weir.alert_rules
WHERE id = %(id)s AND organization = %(organization)s AND project = %(project)s AND environment = %(environment)s;

-- name: named_rule
-- The id of the rule with a name.
SELECT id FROM weir.alert_rules
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s
  AND name = %(name)s;

-- name: list_rules
-- The rules of an environment by name.
SELECT * FROM weir.alert_rules WHERE $ENVIRONMENT ORDER BY name;

-- name: lock_rules_of_environment
-- The rules of an environment by name, locked until the transaction ends.
SELECT * FROM weir.alert_rules WHERE $ENVIRONMENT ORDER BY name FOR NO KEY UPDATE;

-- name: enabled_rules
-- Every enabled rule of every tenant.
SELECT * FROM weir.alert_rules WHERE enabled ORDER BY id;

-- name: delete_rule
-- Delete a rule and its memories; its alerts stay.
DELETE FROM weir.alert_rules
WHERE id = %(id)s AND organization = %(organization)s AND project = %(project)s AND environment = %(environment)s;
