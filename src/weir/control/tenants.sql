-- name: ensure_organization
-- Create an organization unless it exists.
INSERT INTO weir.organizations (organization, created_at_ms)
VALUES (%(organization)s, %(now_ms)s)
ON CONFLICT DO NOTHING

-- name: ensure_project
-- Create a project unless it exists.
INSERT INTO weir.projects (organization, project, created_at_ms)
VALUES (%(organization)s, %(project)s, %(now_ms)s)
ON CONFLICT DO NOTHING

-- name: ensure_environment
-- Create an environment unless it exists.
-- The query looks for it first: ON CONFLICT waits for a transaction that changes the row, which may wait for Redis.
INSERT INTO weir.environments (organization, project, environment, created_at_ms)
SELECT %(organization)s, %(project)s, %(environment)s, %(now_ms)s
WHERE NOT EXISTS (SELECT FROM weir.environments WHERE $ENVIRONMENT)
ON CONFLICT DO NOTHING

-- name: limit_environment
-- Set how many messages of an environment may be leased at once.
UPDATE weir.environments SET concurrency = %(concurrency)s, limited_by_spec = %(by_spec)s
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s

-- name: list_environments
-- Every environment inside a scope, by name.
SELECT organization, project, environment, concurrency, created_at_ms
FROM weir.environments
WHERE $SCOPE
ORDER BY organization, project, environment

-- name: some_environments
-- The next environments of every tenant, locked against changes: start-up hands their limits to the broker.
SELECT organization, project, environment, concurrency, created_at_ms
FROM weir.environments
WHERE (organization, project, environment) > (%(organization)s::text, %(project)s::text, %(environment)s::text)
ORDER BY organization, project, environment
LIMIT %(limit)s
FOR SHARE
