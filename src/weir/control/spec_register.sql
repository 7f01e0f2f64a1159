-- part: NEWEST
(SELECT revision, spec, source FROM weir.applied_specs WHERE $ENVIRONMENT ORDER BY revision DESC LIMIT 1)

-- name: plan_facts
-- What a plan for an environment depends on, in one row, and as texts that need no parsing here.
SELECT
    coalesce((SELECT revision FROM weir.environments WHERE $ENVIRONMENT), 0) AS revision,
    (SELECT concurrency FROM weir.environments WHERE $ENVIRONMENT) AS concurrency,
    coalesce((SELECT limited_by_spec FROM weir.environments WHERE $ENVIRONMENT), false) AS limited_by_spec,
    coalesce((SELECT revision FROM $NEWEST AS s), 0) AS spec_revision,
    (SELECT spec::text FROM $NEWEST AS s) AS spec,
    (SELECT source FROM $NEWEST AS s) AS source,
    (SELECT coalesce(json_object_agg(queue, spec), '{}')::text FROM weir.queue_definitions
     WHERE $ENVIRONMENT) AS definitions,
    (SELECT coalesce(json_object_agg(app, spec), '{}')::text FROM weir.declared_apps WHERE $ENVIRONMENT) AS apps,
    (SELECT coalesce(array_agg(name), '{}') FROM weir.alert_channels WHERE $ENVIRONMENT) AS alert_channels,
    (SELECT coalesce(array_agg(name), '{}') FROM weir.secrets WHERE $ENVIRONMENT) AS secrets,
    (SELECT coalesce(array_agg(queue ORDER BY queue), '{}') FROM weir.dlq_summary
     WHERE $ENVIRONMENT AND dead_count > 0) AS dead_queues,
    (SELECT coalesce(array_agg(dead_count ORDER BY queue), '{}') FROM weir.dlq_summary
     WHERE $ENVIRONMENT AND dead_count > 0) AS dead_counts

-- name: current_spec
-- The newest revision of an environment's spec.
SELECT revision, spec::text AS spec, source, file, actor, applied_at_ms
FROM weir.applied_specs WHERE $ENVIRONMENT
ORDER BY revision DESC
LIMIT 1

-- name: spec_revision
-- One revision of an environment's spec.
SELECT revision, spec::text AS spec, source, file, actor, applied_at_ms
FROM weir.applied_specs WHERE $ENVIRONMENT AND revision = %(revision)s

-- name: spec_history
-- The revisions of an environment without their texts, newest first.
SELECT revision, file, actor, applied_at_ms
FROM weir.applied_specs WHERE $ENVIRONMENT
ORDER BY revision DESC
LIMIT %(limit)s

-- name: store_spec
-- Add a revision of an environment's spec, and return its number.
INSERT INTO weir.applied_specs (organization, project, environment, revision, spec, source, file, actor, applied_at_ms)
SELECT %(organization)s, %(project)s, %(environment)s, coalesce(max(revision), 0) + 1, %(spec)s::json, %(source)s, %(file)s,
       %(actor)s, %(now_ms)s
FROM weir.applied_specs WHERE $ENVIRONMENT
RETURNING revision

-- name: drop_old_specs
-- Delete the revisions of an environment's spec but the newest.
DELETE FROM weir.applied_specs WHERE $ENVIRONMENT AND revision <= %(revision)s::integer - %(keep)s::integer

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
-- The short addresses that an environment owns.
SELECT name FROM weir.hook_names WHERE $ENVIRONMENT

-- name: changed_environments
-- Environments that changed since a snapshot, and the oldest transaction that a new snapshot does not see.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS seen,
       ARRAY(SELECT ARRAY[organization, project, environment, revision::text] FROM weir.environments
             WHERE changed_by >= %(seen)s) AS environments

-- part: OF_IT
(organization, project, environment) = (c.organization, c.project, c.environment)

-- name: environment_news
-- What changed in environments since revisions of them, and the names of all their queues.
SELECT
    c.organization, c.project, c.environment,
    (SELECT json_build_object('app', spec -> 'app', 'webhooks', spec -> 'webhooks', 'channels', spec -> 'channels')::text
     FROM weir.applied_specs WHERE $OF_IT ORDER BY revision DESC LIMIT 1) AS spec,
    (SELECT coalesce(array_agg(name), '{}') FROM weir.hook_names WHERE $OF_IT) AS hooks,
    (SELECT coalesce(array_agg(queue), '{}') FROM weir.queue_definitions WHERE $OF_IT) AS names,
    (SELECT coalesce(json_object_agg(queue, spec), '{}')::text FROM weir.queue_definitions
     WHERE $OF_IT AND revision > c.known) AS queues
FROM unnest(%(organizations)s::text[], %(projects)s::text[], %(environments)s::text[], %(known)s::bigint[])
     AS c (organization, project, environment, known)
