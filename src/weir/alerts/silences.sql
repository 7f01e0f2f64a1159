-- name: add_silence
-- Create a silence.
INSERT INTO weir.alert_silences (
    id, organization, project, environment, rule_name, queue, starts_at_ms, ends_at_ms, comment, created_by
)
VALUES (
    %(id)s, %(organization)s, %(project)s, %(environment)s, %(rule_name)s, %(queue)s, %(starts_at_ms)s,
    %(ends_at_ms)s, %(comment)s, %(created_by)s
);

-- name: list_silences
-- The silences of an environment that have not ended.
SELECT * FROM weir.alert_silences
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s
  AND ends_at_ms > %(now_ms)s
ORDER BY ends_at_ms;

-- name: end_silence
-- End a silence now.
DELETE FROM weir.alert_silences
WHERE id = %(id)s AND organization = %(organization)s AND project = %(project)s AND environment = %(environment)s;
