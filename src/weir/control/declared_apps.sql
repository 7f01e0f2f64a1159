-- name: declared_apps
-- The apps of an environment by name, with what each declared last.
SELECT app AS name, spec::text AS spec, actor, declared_at_ms FROM weir.declared_apps WHERE $ENVIRONMENT ORDER BY app

-- name: declare_app
-- Store what an app declares now.
INSERT INTO weir.declared_apps (organization, project, environment, app, spec, actor, declared_at_ms)
VALUES (%(organization)s, %(project)s, %(environment)s, %(app)s, %(spec)s::json, %(actor)s, %(now_ms)s)
ON CONFLICT (organization, project, environment, app) DO UPDATE SET
    spec = EXCLUDED.spec, actor = EXCLUDED.actor, declared_at_ms = EXCLUDED.declared_at_ms
