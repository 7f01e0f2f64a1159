-- part: COLUMNS
organization, project, environment, name, key_id, sealed, set_at_ms, set_by,
    previous_key_id, previous_sealed, previous_until_ms

-- name: lock_secrets
-- Let one transaction change secrets at a time, so that versions are committed in their order and no reader skips one.
SELECT pg_advisory_xact_lock(hashtext('weir.secrets'))

-- name: note_secrets_changed
-- Note that the secrets of an environment changed.
INSERT INTO weir.secret_changes (organization, project, environment, version)
VALUES (%(organization)s, %(project)s, %(environment)s, nextval('weir.secrets_version'))
ON CONFLICT (organization, project, environment) DO UPDATE SET version = EXCLUDED.version

-- name: changed_environments
-- The environments whose secrets changed after a version, oldest change first.
SELECT organization, project, environment, version
FROM weir.secret_changes
WHERE version > %(version)s
ORDER BY version
LIMIT %(limit)s

-- name: find_secret
-- One secret of an environment.
SELECT $COLUMNS FROM weir.secrets
WHERE $ENVIRONMENT AND name = %(name)s

-- name: secrets_of
-- The secrets of an environment by name.
SELECT $COLUMNS FROM weir.secrets
WHERE $ENVIRONMENT
ORDER BY name

-- name: secrets_of_environments
-- The secrets of several environments.
SELECT $COLUMNS FROM weir.secrets
JOIN unnest(%(organizations)s::text[], %(projects)s::text[], %(environments)s::text[])
    AS asked (organization, project, environment) USING (organization, project, environment)

-- name: count_secrets
-- How many secrets an environment has.
SELECT count(*) AS secrets FROM weir.secrets
WHERE $ENVIRONMENT

-- name: put_secret
-- Store a secret, or replace it; the value before it holds until it ends.
INSERT INTO weir.secrets (organization, project, environment, name, key_id, sealed, set_at_ms, set_by)
VALUES (%(organization)s, %(project)s, %(environment)s, %(name)s, %(key_id)s, %(sealed)s, %(now_ms)s, %(actor)s)
ON CONFLICT (organization, project, environment, name) DO UPDATE SET
    previous_key_id = CASE WHEN %(until_ms)s::bigint IS NULL THEN NULL ELSE secrets.key_id END,
    previous_sealed = CASE WHEN %(until_ms)s::bigint IS NULL THEN NULL ELSE secrets.sealed END,
    previous_until_ms = %(until_ms)s::bigint,
    key_id = EXCLUDED.key_id, sealed = EXCLUDED.sealed, set_at_ms = EXCLUDED.set_at_ms, set_by = EXCLUDED.set_by

-- name: end_previous
-- End the value that was replaced now.
UPDATE weir.secrets
SET previous_key_id = NULL, previous_sealed = NULL, previous_until_ms = NULL
WHERE $ENVIRONMENT AND name = %(name)s AND previous_sealed IS NOT NULL

-- name: delete_secret
-- Delete a secret, with the value before it.
DELETE FROM weir.secrets
WHERE $ENVIRONMENT AND name = %(name)s

-- name: any_secret
-- One row if anything is stored sealed.
SELECT 1 AS one FROM weir.secrets
UNION ALL
SELECT 1 FROM weir.alert_channels WHERE sealed IS NOT NULL
LIMIT 1

-- name: sealed_otherwise
-- Secrets that known keys open and that a key did not seal, or not their previous value.
SELECT $COLUMNS FROM weir.secrets
WHERE (key_id <> %(key_id)s OR previous_key_id <> %(key_id)s)
  AND key_id = ANY (%(known)s::text[]) AND coalesce(previous_key_id = ANY (%(known)s::text[]), true)
ORDER BY organization, project, environment, name
LIMIT %(limit)s

-- name: reseal
-- Store the same values under another key, unless somebody changed them meanwhile.
UPDATE weir.secrets
SET key_id = %(key_id)s, sealed = %(sealed)s,
    previous_key_id = CASE WHEN previous_sealed IS NULL THEN NULL ELSE %(key_id)s END,
    previous_sealed = %(previous_sealed)s
WHERE $ENVIRONMENT AND name = %(name)s AND sealed = %(old_sealed)s
  AND previous_sealed IS NOT DISTINCT FROM %(old_previous)s

-- name: count_by_key
-- How many secrets, and credentials of alert channels, each key seals. A replaced value that still holds counts if its
-- key is another one.
SELECT key_id, count(*) AS secrets
FROM (
    SELECT key_id FROM weir.secrets
    UNION ALL
    SELECT previous_key_id FROM weir.secrets WHERE previous_key_id <> key_id AND previous_until_ms > weir.clock_ms()
    UNION ALL
    SELECT key_id FROM weir.alert_channels WHERE sealed IS NOT NULL
) AS sealed
GROUP BY key_id
ORDER BY key_id
