-- name: record_audit
-- Record who changed what.
INSERT INTO weir.audit_log (id, organization, project, environment, actor, action, target, details, at_ms)
VALUES (%(id)s, %(organization)s, %(project)s, %(environment)s, %(actor)s, %(action)s, %(target)s,
        %(details)s, %(at_ms)s)

-- name: list_audit
-- The newest changes inside a scope; if an id is given, only changes before it.
SELECT id::text AS id, organization, project, environment, actor, action, target, details, at_ms
FROM weir.audit_log
WHERE $SCOPE
  AND (%(before)s::uuid IS NULL OR id < %(before)s::uuid)
ORDER BY id DESC
LIMIT %(limit)s
