-- part: WAITING
position IS NOT NULL AND failed_at IS NULL AND queue <> ALL(%(held)s::text[])

-- name: add
-- Write a message inside the user's transaction.
INSERT INTO weir_outbox.messages (id, queue, key, payload, is_json, headers, priority, delay_ms, idempotency_key)
VALUES (CAST(%(id)s AS uuid), %(queue)s, %(key)s, %(payload)s, %(is_json)s, %(headers)s, %(priority)s, %(delay_ms)s,
        %(idempotency_key)s)

-- name: find_waiting
-- A message that is not relayed yet.
SELECT queue, payload, headers FROM weir_outbox.messages WHERE id = CAST(%(id)s AS uuid)

-- name: take_part
-- Take a part of the stripes for a while, unless another relay has it; no row then. It counts as a start: that tells how
-- often a relay ended before it could say that all is well.
INSERT INTO weir_outbox.parts AS p (part, starts, holder, held_until)
VALUES (%(part)s, 1, %(holder)s, clock_timestamp() + make_interval(secs => %(seconds)s))
ON CONFLICT (part) DO UPDATE
SET starts = least(p.starts, 1000) + 1, holder = excluded.holder, held_until = excluded.held_until
WHERE p.holder IS NULL OR p.held_until < clock_timestamp()
RETURNING starts

-- name: keep_parts
-- Keep the parts of this relay for a while longer; returns those that it still has.
UPDATE weir_outbox.parts SET held_until = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE holder = %(holder)s
RETURNING part

-- name: leave_parts
-- Give up the parts of this relay, so that another takes them at once.
UPDATE weir_outbox.parts SET holder = NULL, held_until = NULL WHERE holder = %(holder)s

-- name: calm_parts
-- Note that these parts were relayed without an end of their relay.
UPDATE weir_outbox.parts SET starts = 0, suspect = NULL, tries = 0 WHERE part = ANY(%(parts)s::int[])

-- name: count_try
-- Count a try of the message that goes out alone, before it goes out.
UPDATE weir_outbox.parts SET tries = CASE WHEN suspect = %(id)s THEN tries + 1 ELSE 1 END, suspect = %(id)s
WHERE part = %(part)s
RETURNING tries

-- name: parts_waiting
-- Which of these parts have messages to relay behind a position, and the last position of each.
SELECT part,
    EXISTS (SELECT FROM weir_outbox.messages WHERE (stripe & 7) = part AND position > after AND $WAITING) AS waiting,
    (SELECT max(position) FROM weir_outbox.messages
     WHERE (stripe & 7) = part AND position IS NOT NULL AND failed_at IS NULL) AS last
FROM unnest(%(parts)s::int[], %(after)s::bigint[]) AS p (part, after)

-- name: next_messages
-- The first messages of a part in the order of their positions, up to a number and a size.
SELECT id, position, queue, key, payload, is_json, headers, priority, idempotency_key,
    CASE WHEN delay_ms IS NOT NULL THEN
        greatest(0, delay_ms - floor(extract(epoch FROM clock_timestamp() - created_at) * 1000)::bigint)
    END AS delay_ms
FROM (
    SELECT *, sum(octet_length(payload) + coalesce(octet_length(headers), 0)) OVER (ORDER BY position)
        - octet_length(payload) - coalesce(octet_length(headers), 0) AS bytes_before
    FROM (
        SELECT * FROM weir_outbox.messages
        WHERE (stripe & 7) = %(part)s AND position > %(after)s AND $WAITING
        ORDER BY position LIMIT %(limit)s
    ) AS first
) AS sized
WHERE bytes_before < %(max_bytes)s
ORDER BY position

-- name: remove
-- Delete messages that are in their queues.
DELETE FROM weir_outbox.messages WHERE id = ANY(%(ids)s::uuid[])

-- name: fail
-- Set aside a message that can never be pushed.
UPDATE weir_outbox.messages SET failed_at = clock_timestamp(), problem = %(problem)s WHERE id = %(id)s

-- name: list_failed
-- The messages that were set aside, the newest first.
SELECT id, queue, key, failed_at, problem FROM weir_outbox.messages WHERE failed_at IS NOT NULL
ORDER BY failed_at DESC, id LIMIT %(limit)s

-- name: show
-- One message of the outbox, with the beginning of its payload.
SELECT id, queue, key, is_json, octet_length(payload) AS payload_bytes, substring(payload FOR %(shown)s) AS payload, headers,
    priority, delay_ms, idempotency_key, created_at, failed_at, problem
FROM weir_outbox.messages WHERE id = %(id)s

-- name: retry
-- Relay messages again that were set aside: these, or all of them.
UPDATE weir_outbox.messages SET failed_at = NULL, problem = NULL
WHERE failed_at IS NOT NULL AND (%(ids)s::uuid[] IS NULL OR id = ANY(%(ids)s::uuid[]))

-- name: figures
-- How many messages wait, since when, and how many can never be pushed.
SELECT count(*) FILTER (WHERE failed_at IS NULL) AS waiting,
    count(*) FILTER (WHERE failed_at IS NOT NULL) AS failed,
    floor(extract(epoch FROM clock_timestamp() - min(created_at) FILTER (WHERE failed_at IS NULL)) * 1000)::bigint
        AS oldest_age_ms,
    (SELECT problem FROM weir_outbox.messages WHERE failed_at IS NOT NULL ORDER BY failed_at DESC LIMIT 1) AS problem
FROM weir_outbox.messages
