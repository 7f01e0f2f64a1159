-- name: put_channel
-- Create or change a channel; a change enables it again.
INSERT INTO weir.alert_channels (organization, project, environment, name, kind, config, created_at_ms)
VALUES (%(organization)s, %(project)s, %(environment)s, %(name)s, %(kind)s, %(config)s, %(now_ms)s)
ON CONFLICT (organization, project, environment, name) DO UPDATE SET
    kind = EXCLUDED.kind, config = EXCLUDED.config, disabled_reason = NULL;

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
