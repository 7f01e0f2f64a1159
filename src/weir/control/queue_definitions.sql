-- part: USERS
SELECT queue, 'channel' AS kind, channel_id AS name, 'consumer ' || consumer_id AS role, '' AS owner
FROM weir.consumers WHERE $ENVIRONMENT AND channel_id <> ''
UNION ALL
SELECT queue, 'schedule', name, 'it pushes there', origin FROM weir.schedules WHERE $ENVIRONMENT
UNION ALL
SELECT queue, 'alert', name, 'it watches the queue', origin FROM weir.alert_rules
WHERE $ENVIRONMENT AND queue IS NOT NULL
UNION ALL
SELECT spec #>> '{delivery,dead_letter_queue}', 'queue', queue, 'for its dead letters', '' FROM weir.queue_definitions
WHERE $ENVIRONMENT AND spec #>> '{delivery,dead_letter_queue}' IS NOT NULL
UNION ALL
SELECT coalesce(spec #>> '{action,then,queue}', spec #>> '{action,queue}'), 'queue', queue, 'its chain', ''
FROM weir.queue_definitions
WHERE $ENVIRONMENT AND coalesce(spec #>> '{action,then,queue}', spec #>> '{action,queue}') IS NOT NULL
UNION ALL
SELECT webhook.value ->> 'queue', 'webhook', webhook.key, 'it pushes there', 'spec'
FROM (SELECT spec FROM weir.applied_specs WHERE $ENVIRONMENT ORDER BY revision DESC LIMIT 1) AS s,
     json_each(coalesce(s.spec -> 'webhooks', '{}')) AS webhook
WHERE webhook.value ->> 'queue' IS NOT NULL

-- name: queue_users
-- Who uses a queue of an environment, or each of its queues, as JSON.
SELECT coalesce(json_agg(u ORDER BY kind, name), '[]')::text AS users FROM ($USERS) AS u
WHERE %(queue)s::text IS NULL OR queue = %(queue)s::text

-- name: queue_owner
-- The spec or the app that has a queue.
SELECT 'spec' AS kind, s.spec ->> 'app' AS name
FROM (SELECT spec FROM weir.applied_specs WHERE $ENVIRONMENT ORDER BY revision DESC LIMIT 1) AS s
WHERE s.spec -> 'queues' -> %(queue)s::text IS NOT NULL
UNION ALL
SELECT 'app', app FROM weir.declared_apps WHERE $ENVIRONMENT AND spec -> 'queues' -> %(queue)s::text IS NOT NULL
LIMIT 1

-- name: count_dead
-- How many dead letters a queue has.
SELECT coalesce(sum(dead_count), 0)::bigint AS dead FROM weir.dlq_summary WHERE $ENVIRONMENT AND queue = %(queue)s

-- name: define_queues
-- Create or change the definitions of queues, which come as one JSON object.
INSERT INTO weir.queue_definitions (organization, project, environment, queue, spec, defined_at_ms, revision)
SELECT %(organization)s, %(project)s, %(environment)s, key, value, %(now_ms)s, %(revision)s
FROM jsonb_each(%(specs)s::jsonb) ORDER BY key
ON CONFLICT (organization, project, environment, queue)
DO UPDATE SET spec = EXCLUDED.spec, defined_at_ms = EXCLUDED.defined_at_ms, revision = EXCLUDED.revision

-- name: pause_queue
-- Store whether a queue is paused.
UPDATE weir.queue_definitions SET paused = %(paused)s
WHERE organization = %(organization)s AND project = %(project)s
  AND environment = %(environment)s AND queue = %(queue)s

-- name: forget_queues
-- Remove the definitions of queues.
DELETE FROM weir.queue_definitions WHERE $ENVIRONMENT AND queue = ANY (%(queues)s::text[])

-- name: find_queue
-- The definition of one queue.
SELECT organization, project, environment, queue, spec::text AS spec, paused, defined_at_ms
FROM weir.queue_definitions
WHERE organization = %(organization)s AND project = %(project)s
  AND environment = %(environment)s AND queue = %(queue)s

-- name: list_queues
-- Every definition of an environment, by name.
SELECT organization, project, environment, queue, spec::text AS spec, paused, defined_at_ms
FROM weir.queue_definitions
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s
ORDER BY queue

-- name: some_queues
-- The next definitions of every tenant, locked against changes: start-up hands them to the broker.
SELECT organization, project, environment, queue, spec::text AS spec, paused, defined_at_ms
FROM weir.queue_definitions
WHERE (organization, project, environment, queue)
      > (%(organization)s::text, %(project)s::text, %(environment)s::text, %(queue)s::text)
ORDER BY organization, project, environment, queue
LIMIT %(limit)s
FOR SHARE
