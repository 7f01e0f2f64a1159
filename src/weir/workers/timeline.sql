-- name: death_of_message
-- The dead letter of a message, with its replay if there was one.
SELECT c.queue, l.died_at_ms, l.attempts, l.reason, l.error, l.replay_of::text,
       l.replay_id::text, l.replayed_at_ms, l.replay_result, l.envelope
FROM weir.dead_letters AS l
JOIN weir.consumers AS c USING (consumer_key)
WHERE l.id = %(message_id)s::uuid AND c.organization = %(organization)s AND c.project = %(project)s
  AND c.environment = %(environment)s

-- name: replay_of_message
-- The dead letter that a message replays.
SELECT c.queue, l.id::text AS letter_id, l.replayed_at_ms
FROM weir.dead_letters AS l
JOIN weir.consumers AS c USING (consumer_key)
WHERE l.replay_id = %(message_id)s::uuid AND l.replayed_at_ms >= %(created_ms)s - 86400000 AND c.organization = %(organization)s AND c.project = %(project)s
  AND c.environment = %(environment)s

-- name: operations_of_message
-- The queued operations that put a message in or will do so, searched within a day of the message's own time.
SELECT id::text, type, queue, status, created_ms, finished_ms, retry_count, error
FROM weir.operations
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s
  -- The time in the id comes from the clock of the process that made it, which may differ from PostgreSQL's.
  AND created_ms BETWEEN %(created_ms)s - 86400000 AND %(created_ms)s + 86400000
  -- Rows of an older release have no range.
  AND (message_ids @> %(message_id)s::text::uuid OR message_ids IS NULL)
  AND position(convert_to(%(message_id)s::text, 'UTF8') IN payload) > 0
  -- An operation whose result names other messages found this one to be a duplicate and did not put it in.
  AND (result -> 'messages' IS NULL OR result -> 'executed' IS NOT NULL
    OR result -> 'messages' @> jsonb_build_array(jsonb_build_object('id', %(message_id)s::text)))
ORDER BY created_ms
LIMIT 20
