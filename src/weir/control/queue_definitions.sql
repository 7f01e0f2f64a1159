-- name: define_queue
-- Create or change the definition of a queue.
INSERT INTO weir.queue_definitions (organization, project, environment, queue, spec, defined_at_ms)
VALUES (%(organization)s, %(project)s, %(environment)s, %(queue)s, %(spec)s, %(now_ms)s)
ON CONFLICT (organization, project, environment, queue)
DO UPDATE SET spec = EXCLUDED.spec, defined_at_ms = EXCLUDED.defined_at_ms

-- name: pause_queue
-- Store whether a queue is paused.
UPDATE weir.queue_definitions SET paused = %(paused)s
WHERE organization = %(organization)s AND project = %(project)s
  AND environment = %(environment)s AND queue = %(queue)s

-- name: forget_queue
-- Remove the definition of a queue.
DELETE FROM weir.queue_definitions
WHERE organization = %(organization)s AND project = %(project)s
  AND environment = %(environment)s AND queue = %(queue)s

-- name: find_queue
-- The definition of one queue.
SELECT organization, project, environment, queue, spec, paused, defined_at_ms
FROM weir.queue_definitions
WHERE organization = %(organization)s AND project = %(project)s
  AND environment = %(environment)s AND queue = %(queue)s

-- name: dying_into
-- The queues of an environment whose dead letter queue is this one.
SELECT queue FROM weir.queue_definitions
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s
  AND spec #>> '{delivery,dead_letter_queue}' = %(queue)s
ORDER BY queue

-- name: list_queues
-- Every definition of an environment, by name.
SELECT organization, project, environment, queue, spec, paused, defined_at_ms
FROM weir.queue_definitions
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s
ORDER BY queue

-- name: all_queues
-- Every definition of every tenant: start-up hands them to the broker.
SELECT organization, project, environment, queue, spec, paused, defined_at_ms
FROM weir.queue_definitions
ORDER BY organization, project, environment, queue
