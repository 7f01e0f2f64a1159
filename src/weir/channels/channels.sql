-- part: THE_CHANNEL
$ENVIRONMENT AND channel_id = %(channel_id)s

-- name: put_channel
-- Create a channel or change its name.
INSERT INTO weir.channels (organization, project, environment, channel_id, name, created_at_ms)
VALUES (%(organization)s, %(project)s, %(environment)s, %(channel_id)s, %(name)s, %(now_ms)s)
ON CONFLICT (organization, project, environment, channel_id) DO UPDATE SET name = excluded.name;

-- name: remove_channel
-- Remove a channel.
DELETE FROM weir.channels WHERE $THE_CHANNEL;

-- name: channels_of
-- The channels of an environment.
SELECT channel_id, name FROM weir.channels WHERE $ENVIRONMENT ORDER BY channel_id;

-- name: channel_consumers
-- The consumers of all channels of an environment.
SELECT channel_id, consumer_id, consumer_name, queue FROM weir.consumers
WHERE $ENVIRONMENT AND channel_id <> ''
ORDER BY channel_id, consumer_id;

-- name: detach_all
-- Make the consumers of a channel implicit ones; return their old ids and tokens.
UPDATE weir.consumers AS c
SET channel_id = '', channel_name = '', consumer_id = c.queue, consumer_name = c.queue,
    token_id = NULL, token_sha256 = NULL
FROM (
    SELECT consumer_key, consumer_id, token_id, token_sha256 FROM weir.consumers
    WHERE $THE_CHANNEL
    ORDER BY consumer_key FOR UPDATE
) AS old
WHERE c.consumer_key = old.consumer_key
RETURNING old.consumer_id, old.token_id, old.token_sha256;

-- name: attach
-- Give a queue to a consumer of a channel, unless another channel has it.
UPDATE weir.consumers
SET channel_id = %(channel_id)s, channel_name = %(channel_name)s,
    consumer_id = %(consumer_id)s, consumer_name = %(consumer_name)s,
    token_id = %(token_id)s, token_sha256 = %(token_sha256)s
WHERE consumer_key = %(consumer_key)s AND channel_id = ''
RETURNING consumer_key;

-- name: rename_summaries
-- Write the present names of an environment's consumers into the summary of dead letters.
UPDATE weir.dlq_summary AS s
-- The summary repeats the names so that `/dlq-status` reads one table. So each change of a name changes both.
SET channel_id = c.channel_id, channel_name = c.channel_name,
    consumer_id = c.consumer_id, consumer_name = c.consumer_name
FROM (SELECT * FROM weir.consumers WHERE $ENVIRONMENT) AS c
WHERE c.consumer_key = s.consumer_key
  AND (s.channel_id, s.channel_name, s.consumer_id, s.consumer_name)
      IS DISTINCT FROM (c.channel_id, c.channel_name, c.consumer_id, c.consumer_name);

-- name: set_channel_token
-- Replace the token of a channel.
UPDATE weir.channels SET token_id = %(token_id)s, token_sha256 = %(digest)s WHERE $THE_CHANNEL;

-- name: set_consumer_token
-- Replace the token of a consumer.
UPDATE weir.consumers SET token_id = %(token_id)s, token_sha256 = %(digest)s
WHERE $THE_CHANNEL AND channel_id <> '' AND consumer_id = %(consumer_id)s;

-- name: channel_by_token
-- The channel that a token belongs to.
SELECT organization, project, environment, channel_id, name, token_sha256
FROM weir.channels WHERE token_id = %(token_id)s;

-- name: consumer_by_token
-- The consumer that a token belongs to.
SELECT organization, project, environment, channel_id, consumer_id, consumer_name, queue, token_sha256
FROM weir.consumers WHERE token_id = %(token_id)s;

-- name: channel_owner
-- The spec that has a channel.
SELECT s.spec ->> 'app' AS name
FROM (SELECT spec FROM weir.applied_specs WHERE $ENVIRONMENT ORDER BY revision DESC LIMIT 1) AS s
WHERE s.spec -> 'channels' -> %(channel_id)s::text IS NOT NULL
