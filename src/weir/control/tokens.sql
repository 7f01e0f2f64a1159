-- name: insert_token
-- Store a new token with the digest of its secret.
INSERT INTO weir.tokens (id, organization, project, environment, role, name, secret_sha256,
                         created_at_ms, expires_at_ms, replaces, direct)
VALUES (%(id)s, %(organization)s, %(project)s, %(environment)s, %(role)s, %(name)s, %(digest)s,
        %(now_ms)s, %(expires_at_ms)s, %(replaces)s, %(direct)s)

-- name: find_token
-- One token by its id, for authentication.
SELECT id, organization, project, environment, role, name, secret_sha256, created_at_ms,
       expires_at_ms, revoked_at_ms, last_used_at_ms, replaces, direct
FROM weir.tokens WHERE id = %(id)s

-- name: lock_token
-- One token by its id, locked until the transaction ends.
SELECT id, organization, project, environment, role, name, secret_sha256, created_at_ms,
       expires_at_ms, revoked_at_ms, last_used_at_ms, replaces, direct
FROM weir.tokens WHERE id = %(id)s FOR UPDATE

-- name: list_tokens
-- Every token whose scope lies inside another scope, newest first.
SELECT id, organization, project, environment, role, name, secret_sha256, created_at_ms,
       expires_at_ms, revoked_at_ms, last_used_at_ms, replaces, direct
FROM weir.tokens
WHERE $SCOPE
ORDER BY created_at_ms DESC, id

-- name: direct_tokens
-- Every token for direct mode, also if it has ended.
SELECT id, organization, project, environment, role, name, secret_sha256, created_at_ms,
       expires_at_ms, revoked_at_ms, last_used_at_ms, replaces, direct
FROM weir.tokens WHERE direct

-- name: revoke_token
-- Revoke a token inside a scope; returns no row if it is revoked already.
UPDATE weir.tokens SET revoked_at_ms = %(now_ms)s
WHERE id = %(id)s AND revoked_at_ms IS NULL
  AND $SCOPE
RETURNING id, organization, project, environment, role, name, secret_sha256, created_at_ms,
          expires_at_ms, revoked_at_ms, last_used_at_ms, replaces, direct

-- name: expire_token
-- Set when a token ends, unless it ends sooner.
UPDATE weir.tokens SET expires_at_ms = LEAST(expires_at_ms, %(expires_at_ms)s)
WHERE id = %(id)s

-- name: touch_token
-- Store when a token was last used.
UPDATE weir.tokens SET last_used_at_ms = GREATEST(last_used_at_ms, %(at_ms)s)
WHERE id = %(id)s
