-- name: record_children
-- Add children of messages, one row per element of the arrays. A repeated push adds nothing.
INSERT INTO weir.message_children (organization, project, environment, parent_id, child_id, queue, kind, at_ms)
SELECT * FROM unnest(%(organization)s::text[], %(project)s::text[], %(environment)s::text[], %(parent_id)s::uuid[],
                     %(child_id)s::uuid[], %(queue)s::text[], %(kind)s::text[], %(at_ms)s::bigint[])
ON CONFLICT DO NOTHING

-- name: children_of_message
-- The first children of a message, oldest first.
SELECT child_id::text AS message_id, queue, kind, at_ms
FROM weir.message_children
WHERE parent_id = %(message_id)s::uuid AND organization = %(organization)s AND project = %(project)s
  AND environment = %(environment)s
ORDER BY at_ms, child_id
LIMIT %(limit)s

-- name: parent_of_message
-- The parent of a message.
SELECT parent_id::text AS message_id, queue, kind, at_ms
FROM weir.message_children
WHERE child_id = %(message_id)s::uuid AND organization = %(organization)s AND project = %(project)s
  AND environment = %(environment)s
LIMIT 1

-- name: forget_children
-- Delete old rows, a limited number at a time.
DELETE FROM weir.message_children
WHERE ctid IN (
    SELECT ctid FROM weir.message_children WHERE at_ms < %(before_ms)s LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
