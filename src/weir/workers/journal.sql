-- name: record_attempts
-- Add attempts, one row per element of the arrays.
INSERT INTO weir.message_attempts (organization, project, environment, queue, message_id, attempt, worker,
                                   enqueued_at_ms, started_at_ms, finished_at_ms, ending, error, hook, received_at_ms, trace_id)
SELECT * FROM unnest(%(organization)s::text[], %(project)s::text[], %(environment)s::text[], %(queue)s::text[],
                     %(message_id)s::text[], %(attempt)s::int[], %(worker)s::text[], %(enqueued_at_ms)s::bigint[],
                     %(started_at_ms)s::bigint[], %(finished_at_ms)s::bigint[], %(ending)s::text[], %(error)s::text[],
                     %(hook)s::text[], %(received_at_ms)s::bigint[], %(trace_id)s::text[])

-- name: record_handler_times
-- Add to the handler times of this worker. Each worker has its own rows, so workers never wait for each other.
INSERT INTO weir.handler_times AS t (organization, project, environment, queue, bucket_ms, worker, attempts, failed,
                                      handler_ms)
SELECT * FROM unnest(%(organization)s::text[], %(project)s::text[], %(environment)s::text[], %(queue)s::text[],
                     %(bucket_ms)s::bigint[], %(worker)s::text[], %(attempts)s::int[], %(failed)s::int[],
                     %(handler_ms)s::bigint[])
ON CONFLICT (organization, project, environment, queue, bucket_ms, worker)
DO UPDATE SET attempts = t.attempts + EXCLUDED.attempts, failed = t.failed + EXCLUDED.failed,
              handler_ms = t.handler_ms + EXCLUDED.handler_ms

-- name: record_results
-- Keep the results of processed messages under their idempotency keys.
INSERT INTO weir.idempotency_keys (organization, project, environment, kind, name, key, message_id, result, at_ms)
SELECT organization, project, environment, 'queue', queue, key, message_id, result::json, at_ms
FROM unnest(%(organization)s::text[], %(project)s::text[], %(environment)s::text[], %(queue)s::text[],
            %(key)s::text[], %(message_id)s::text[], %(result)s::text[], %(at_ms)s::bigint[])
     AS rows (organization, project, environment, queue, key, message_id, result, at_ms)
ON CONFLICT (organization, project, environment, kind, name, key)
DO UPDATE SET message_id = EXCLUDED.message_id, result = EXCLUDED.result, at_ms = EXCLUDED.at_ms

-- name: attempts_of_message
-- The attempts at one message, oldest first.
SELECT queue, message_id, attempt, worker, enqueued_at_ms, started_at_ms, finished_at_ms, ending, error, hook,
       received_at_ms, trace_id
FROM weir.message_attempts
WHERE message_id = %(message_id)s AND organization = %(organization)s AND project = %(project)s
  AND environment = %(environment)s
ORDER BY id

-- name: result_of_message
-- The idempotency key and the result of one message; nothing if it had no key or was not processed.
SELECT key, result, at_ms
FROM weir.idempotency_keys
WHERE kind = 'queue' AND message_id = %(message_id)s AND organization = %(organization)s
  AND project = %(project)s AND environment = %(environment)s

-- name: begin_hook
-- Claim a key for a webhook that runs at once. Returns no row if the key is claimed or has a result.
INSERT INTO weir.idempotency_keys (organization, project, environment, kind, name, key, digest, in_flight,
                                   message_id, at_ms)
VALUES (%(organization)s, %(project)s, %(environment)s, 'hook', %(name)s, %(key)s, %(digest)s, true,
        %(message_id)s, %(now_ms)s)
ON CONFLICT (organization, project, environment, kind, name, key) DO UPDATE
SET digest = EXCLUDED.digest, in_flight = true, message_id = EXCLUDED.message_id, at_ms = EXCLUDED.at_ms, result = NULL
WHERE weir.idempotency_keys.at_ms < %(expired_ms)s
   OR (weir.idempotency_keys.in_flight AND weir.idempotency_keys.at_ms < %(stuck_ms)s)
RETURNING message_id

-- name: find_hook_key
-- The claim or the result under a key of a webhook that runs at once.
SELECT digest, in_flight, result
FROM weir.idempotency_keys
WHERE kind = 'hook' AND name = %(name)s AND key = %(key)s AND organization = %(organization)s
  AND project = %(project)s AND environment = %(environment)s

-- name: finish_hook
-- Store the result of a webhook that ran at once.
UPDATE weir.idempotency_keys SET in_flight = false, result = %(result)s::json
WHERE kind = 'hook' AND name = %(name)s AND key = %(key)s AND organization = %(organization)s
  AND project = %(project)s AND environment = %(environment)s

-- name: abandon_hook
-- Delete the claim of a webhook that failed, so that a retry runs it again.
DELETE FROM weir.idempotency_keys
WHERE kind = 'hook' AND name = %(name)s AND key = %(key)s AND organization = %(organization)s
  AND project = %(project)s AND environment = %(environment)s AND in_flight

-- name: forget_attempts
-- Delete old attempts, a limited number at a time.
DELETE FROM weir.message_attempts
WHERE id = ANY (ARRAY(
    SELECT id FROM weir.message_attempts WHERE finished_at_ms < %(before_ms)s
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED))

-- name: forget_handler_times
-- Delete old handler times, a limited number at a time.
DELETE FROM weir.handler_times
WHERE ctid IN (
    SELECT ctid FROM weir.handler_times WHERE bucket_ms < %(before_ms)s LIMIT %(limit)s FOR UPDATE SKIP LOCKED)

-- name: forget_keys
-- Delete expired idempotency keys, a limited number at a time. A key that is being claimed again stays.
DELETE FROM weir.idempotency_keys
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM weir.idempotency_keys WHERE at_ms < %(before_ms)s
    ORDER BY at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
