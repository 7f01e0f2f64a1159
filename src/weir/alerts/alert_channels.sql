-- name: put_channel
-- Create or change a channel; a change enables it again.
INSERT INTO weir.alert_channels
    (organization, project, environment, name, kind, config, key_id, sealed, created_at_ms)
VALUES (%(organization)s, %(project)s, %(environment)s, %(name)s, %(kind)s, %(config)s, %(key_id)s, %(sealed)s,
        %(now_ms)s)
ON CONFLICT (organization, project, environment, name) DO UPDATE SET
    kind = EXCLUDED.kind, config = EXCLUDED.config, key_id = EXCLUDED.key_id, sealed = EXCLUDED.sealed,
    disabled_reason = NULL;

-- name: sealed_otherwise
-- Channels whose credentials a known key sealed, but not this one, or that an older release left unsealed.
SELECT * FROM weir.alert_channels
WHERE (sealed IS NOT NULL AND key_id <> %(key_id)s AND key_id = ANY (%(known)s::text[]))
   OR (sealed IS NULL AND (kind IN ('slack', 'apprise') OR config ? 'secrets' OR config ? 'password'));

-- name: seal_channel
-- Store the credentials of a channel under another key, unless somebody changed it meanwhile.
UPDATE weir.alert_channels SET config = %(config)s, key_id = %(key_id)s, sealed = %(sealed)s
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s
  AND name = %(name)s AND config = %(old_config)s AND sealed IS NOT DISTINCT FROM %(old_sealed)s;

-- name: find_channel
-- One channel of an environment.
SELECT * FROM weir.alert_channels
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s
  AND name = %(name)s;

-- name: list_channels
-- The channels of an environment by name.
SELECT * FROM weir.alert_channels
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s
ORDER BY name;

-- name: delete_channel
-- Delete a channel.
DELETE FROM weir.alert_channels
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s
  AND name = %(name)s;

-- name: disable_channel
-- Disable a channel whose receiver asked not to be called again.
UPDATE weir.alert_channels SET disabled_reason = %(reason)s
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s
  AND name = %(name)s;
