-- name: add_annotation
-- Store an annotation.
INSERT INTO weir.annotations (id, organization, project, environment, text, at_ms, created_by, created_at_ms)
VALUES (%(id)s, %(organization)s, %(project)s, %(environment)s, %(text)s, %(at_ms)s, %(created_by)s, %(now_ms)s)

-- name: forget_old_annotations
-- Keep only the newest annotations of an environment.
DELETE FROM weir.annotations
WHERE id IN (
    SELECT id FROM weir.annotations
    WHERE $ENVIRONMENT
    ORDER BY at_ms DESC, id DESC
    OFFSET %(kept)s
)

-- name: list_annotations
-- The annotations of an environment, newest first.
SELECT id, text, at_ms, created_by, created_at_ms
FROM weir.annotations
WHERE $ENVIRONMENT
ORDER BY at_ms DESC, id DESC
LIMIT %(limit)s

-- name: delete_annotation
-- Delete an annotation.
DELETE FROM weir.annotations
WHERE id = %(id)s AND $ENVIRONMENT
