-- part: QUEUES_AND_THEIR_DEAD_LETTER_QUEUES
FROM weir.queue_definitions AS s
JOIN weir.queue_definitions AS d
    ON (d.organization, d.project, d.environment) = (s.organization, s.project, s.environment)
    AND d.queue = s.spec #>> '{delivery,dead_letter_queue}'
JOIN weir.consumers AS c
    ON (c.organization, c.project, c.environment, c.queue) = (s.organization, s.project, s.environment, s.queue)

-- name: uncopied
-- Queues with deaths that were not copied into their dead letter queue, and whether that queue receives them.
SELECT s.organization, s.project, s.environment, s.queue, d.queue AS dead_letter_queue, c.consumer_key,
       jsonb_typeof(d.spec -> 'action') = 'object' OR (p.popped AND p.dead_letter_queue = d.queue) IS TRUE AS receives
$QUEUES_AND_THEIR_DEAD_LETTER_QUEUES
LEFT JOIN weir.dead_letter_copies AS p USING (consumer_key)
WHERE s.spec #>> '{delivery,dead_letter_queue}' IS NOT NULL AND EXISTS (
    SELECT FROM weir.dead_letters AS l
    WHERE l.consumer_key = c.consumer_key AND l.replayed_at_ms IS NULL AND l.seq > coalesce(p.copied_to, 0)
);

-- name: begin_copying
-- Remember that a consumer's deaths are copied, and whether its dead letter queue was popped.
INSERT INTO weir.dead_letter_copies AS p (consumer_key, dead_letter_queue, popped)
VALUES (%(consumer)s, %(dead_letter_queue)s, %(popped)s)
ON CONFLICT (consumer_key) DO UPDATE
SET dead_letter_queue = excluded.dead_letter_queue,
    popped = excluded.popped OR (p.popped AND p.dead_letter_queue = excluded.dead_letter_queue)
WHERE p.dead_letter_queue <> excluded.dead_letter_queue OR (excluded.popped AND NOT p.popped);

-- name: claim_copying
-- Claim the copies of a consumer until a deadline, unless another process has them; return the last arrival copied. A claim
-- that ends later than one that begins now is of before this server's clock stepped back, and has ended.
UPDATE weir.dead_letter_copies SET claim = %(claim)s::uuid, claimed_until_ms = weir.clock_ms() + %(claim_ms)s
WHERE consumer_key = %(consumer)s
  AND coalesce(claimed_until_ms NOT BETWEEN weir.clock_ms() + 1 AND weir.clock_ms() + %(claim_ms)s, true)
RETURNING copied_to;

-- name: save_copied
-- Write down up to which arrival the deaths of a consumer are copied, and end the claim; nothing if another took over.
UPDATE weir.dead_letter_copies
SET copied_to = greatest(copied_to, %(copied_to)s), claim = NULL, claimed_until_ms = NULL
WHERE consumer_key = %(consumer)s AND claim = %(claim)s::uuid;

-- name: limited
-- Queues whose dead letters are kept for a limited time, because `max_age` is written for their dead letter queue.
SELECT s.organization, s.project, s.environment, s.queue, d.queue AS dead_letter_queue, c.consumer_key,
       (d.spec #>> '{retention,max_age_ms}')::bigint AS max_age_ms
$QUEUES_AND_THEIR_DEAD_LETTER_QUEUES
WHERE s.spec #>> '{delivery,dead_letter_queue}' IS NOT NULL
  AND d.spec #>> '{retention,max_age_ms}' IS NOT NULL
ORDER BY c.consumer_key;

-- name: delete_aged
-- Look at a consumer's oldest dead letters and delete the ones that died before a moment; return counts by group.
WITH oldest AS (
    SELECT id, died_at_ms FROM weir.dead_letters
    WHERE consumer_key = %(consumer)s AND replayed_at_ms IS NULL
    ORDER BY seq
    LIMIT %(limit)s
), aged AS (
    SELECT l.id FROM weir.dead_letters AS l JOIN oldest USING (id)
    -- Letters that a redrive has in hand are left to it.
    WHERE oldest.died_at_ms < %(before_ms)s AND l.replayed_at_ms IS NULL
      AND coalesce(l.claimed_until_ms <= weir.clock_ms(), true)
    FOR UPDATE OF l SKIP LOCKED
), gone AS (
    DELETE FROM weir.dead_letters AS l USING aged WHERE l.id = aged.id
    RETURNING l.consumer_key, l.group_key
)
SELECT consumer_key, group_key, count(*) AS letters FROM gone GROUP BY consumer_key, group_key;
