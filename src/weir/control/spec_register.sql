-- name: lock_specs
-- Let one process apply at a time, so that serials are committed in their order and no reader skips one.
SELECT pg_advisory_xact_lock(hashtext('weir.applied_specs'))

-- name: current_spec
-- The newest revision of an environment's spec.
SELECT revision, spec, source, file, actor, applied_at_ms
FROM weir.applied_specs
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s
ORDER BY revision DESC
LIMIT 1

-- name: spec_history
-- The revisions of an environment, newest first.
SELECT revision, file, actor, applied_at_ms, spec, source
FROM weir.applied_specs
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s
ORDER BY revision DESC
LIMIT %(limit)s

-- name: store_spec
-- Add a revision of an environment's spec.
INSERT INTO weir.applied_specs (organization, project, environment, revision, spec, source, file, actor, applied_at_ms)
VALUES (%(organization)s, %(project)s, %(environment)s, %(revision)s, %(spec)s, %(source)s, %(file)s, %(actor)s,
        %(now_ms)s)

-- name: all_current_specs
-- The newest revision of every environment's spec.
SELECT DISTINCT ON (organization, project, environment) organization, project, environment, revision, spec
FROM weir.applied_specs
ORDER BY organization, project, environment, revision DESC

-- name: specs_version
-- A value that changes whenever a spec is applied or a queue is defined or forgotten.
SELECT (SELECT coalesce(max(serial), 0) FROM weir.applied_specs) AS serial,
       (SELECT coalesce(max(defined_at_ms), 0) FROM weir.queue_definitions) AS defined_at_ms,
       (SELECT count(*) FROM weir.queue_definitions) AS queues

-- name: dead_counts
-- How many dead letters each queue of an environment has.
SELECT queue, dead_count
FROM weir.dlq_summary
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s

-- name: alert_channels
-- The names of the alert channels of an environment.
SELECT name
FROM weir.alert_channels
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s

-- name: secret_names
-- The names of the secrets of an environment.
SELECT name
FROM weir.secrets
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s

-- name: owned_by_apps
-- The queues and schedules that apps of an environment declare in their code.
SELECT app, 'queue' AS kind, json_object_keys(coalesce(spec -> 'queues', '{}')) AS name
FROM weir.declared_apps
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s
UNION ALL
SELECT app, 'schedule', json_object_keys(coalesce(spec -> 'schedules', '{}'))
FROM weir.declared_apps
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s

-- name: claim_hook_names
-- Claim the short addresses of webhooks that are free.
INSERT INTO weir.hook_names (name, organization, project, environment)
SELECT name, %(organization)s, %(project)s, %(environment)s FROM unnest(%(names)s::text[]) AS name
ON CONFLICT (name) DO NOTHING

-- name: release_hook_names
-- Release the short addresses of webhooks that the spec does not have any more.
DELETE FROM weir.hook_names
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s
  AND name <> ALL (%(names)s::text[])

-- name: hook_names
-- The environment that owns each short address.
SELECT name, organization, project, environment FROM weir.hook_names
