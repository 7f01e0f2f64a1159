-- part: ORIGIN_MS
coalesce(origin_enqueued_at_ms, enqueued_at_ms)

-- part: ORIGIN_ID
coalesce(origin_id, id)

-- part: WHOLE_LETTERS
SELECT l.*, $ORIGIN_MS AS position_ms, $ORIGIN_ID AS position_id, g.fingerprint,
       c.organization, c.project, c.environment, c.queue, c.channel_id, c.consumer_id
FROM weir.dead_letters AS l
JOIN weir.consumers AS c USING (consumer_key)
JOIN weir.dead_letter_groups AS g USING (group_key)

-- part: FILTERED
(%(reason)s::text IS NULL OR reason = %(reason)s)
AND (%(died_from_ms)s::bigint IS NULL OR died_at_ms >= %(died_from_ms)s)
AND (%(died_to_ms)s::bigint IS NULL OR died_at_ms <= %(died_to_ms)s)
AND (NOT %(exhausted_only)s OR attempts >= max_attempts)

-- part: NEWEST_BEFORE
replayed_at_ms IS NULL AND ($ORIGIN_MS, $ORIGIN_ID) < (%(before_ms)s, %(before_id)s::uuid)
ORDER BY $ORIGIN_MS DESC, $ORIGIN_ID DESC
LIMIT %(limit)s

-- part: NEXT_AFTER
replayed_at_ms IS NULL AND ($ORIGIN_MS, $ORIGIN_ID) > (%(after_ms)s, %(after_id)s::uuid)
ORDER BY $ORIGIN_MS, $ORIGIN_ID
LIMIT %(limit)s

-- part: WINDOW
SELECT id, $ORIGIN_MS AS position_ms, $ORIGIN_ID AS position_id,
       octet_length(envelope::text) AS envelope_bytes, $FILTERED AND (
    seq <= %(high_water)s
    -- What a resumed redrive sent back itself, and what died again before it was resumed, is meant once more.
    OR seq <= %(retried_to)s AND EXISTS (
        SELECT FROM weir.dead_letters AS parent
        WHERE parent.id = l.replay_of AND parent.replay_task = %(task)s::uuid
    )
) AS admitted
FROM weir.dead_letters AS l

-- part: PURGE_WINDOW
WITH win AS (
    SELECT id, $ORIGIN_MS AS position_ms, $ORIGIN_ID AS position_id,
           $FILTERED AND seq <= %(high_water)s AS admitted
    FROM weir.dead_letters

-- part: PURGE_ADMITTED
), gone AS (
    DELETE FROM weir.dead_letters AS l USING win
    WHERE l.id = win.id AND win.admitted AND l.replayed_at_ms IS NULL
    RETURNING l.consumer_key, l.group_key
), tally AS (
    SELECT consumer_key, group_key, count(*) AS letters FROM gone GROUP BY consumer_key, group_key
), last AS (
    SELECT position_ms, position_id FROM win ORDER BY position_ms DESC, position_id DESC LIMIT 1
)
SELECT last.position_ms, last.position_id, (SELECT count(*) FROM win) AS scanned,
       (SELECT count(*) FROM win WHERE admitted) AS matched,
       tally.consumer_key, tally.group_key, tally.letters
FROM last LEFT JOIN tally ON true

-- name: insert_letters
-- Store a batch of deaths; those stored before are left alone and not returned.
INSERT INTO weir.dead_letters (
    id, consumer_key, group_key, enqueued_at_ms, died_at_ms, attempts, max_attempts,
    reason, error, payload, envelope, replay_of, origin_enqueued_at_ms, origin_id
)
SELECT id, consumer_key, group_key, enqueued_at_ms, died_at_ms, attempts, max_attempts,
       reason, error, payload, envelope::json, replay_of, origin_enqueued_at_ms, origin_id
FROM unnest(
    %(ids)s::uuid[], %(consumers)s::bigint[], %(groups)s::bigint[], %(enqueued)s::bigint[], %(died)s::bigint[],
    %(attempts)s::integer[], %(max_attempts)s::integer[], %(reasons)s::text[], %(errors)s::text[],
    %(payloads)b::bytea[], %(envelopes)s::text[], %(parents)s::uuid[],
    %(origin_times)s::bigint[], %(origins)s::uuid[]
) AS new (
    id, consumer_key, group_key, enqueued_at_ms, died_at_ms, attempts, max_attempts,
    reason, error, payload, envelope, replay_of, origin_enqueued_at_ms, origin_id
)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: origins_of
-- The first message of each letter's line, which is itself unless it is a replay.
SELECT id, $ORIGIN_MS AS position_ms, $ORIGIN_ID AS position_id
FROM weir.dead_letters
WHERE id = ANY(%(ids)s::uuid[]);

-- name: select_letters
-- Whole letters by id, in their original order.
$WHOLE_LETTERS
WHERE l.id = ANY(%(ids)s::uuid[])
ORDER BY $ORIGIN_MS, $ORIGIN_ID;

-- name: next_deaths
-- The next whole letters of a consumer after an arrival that are still dead, in the order of their deaths.
$WHOLE_LETTERS
WHERE l.consumer_key = %(consumer)s AND l.replayed_at_ms IS NULL AND l.seq > %(after)s
ORDER BY l.seq
LIMIT %(limit)s;

-- name: lock_letters
-- Whole letters that are still dead, in their original order, locked until the transaction ends.
$WHOLE_LETTERS
WHERE l.id = ANY(%(ids)s::uuid[]) AND l.replayed_at_ms IS NULL
ORDER BY $ORIGIN_MS, $ORIGIN_ID
FOR UPDATE OF l;

-- name: delete_letters
-- Remove letters that are still dead; whose they were.
DELETE FROM weir.dead_letters
WHERE id = ANY(%(ids)s::uuid[]) AND replayed_at_ms IS NULL
RETURNING id, consumer_key, group_key;

-- name: mark_replayed
-- Remember as what letters were replayed; they stop counting as dead.
UPDATE weir.dead_letters AS l
SET replay_id = r.replay_id, replayed_at_ms = %(now_ms)s, replay_task = %(task)s::uuid
FROM unnest(%(ids)s::uuid[], %(replay_ids)s::uuid[]) AS r (id, replay_id)
WHERE l.id = r.id AND l.replayed_at_ms IS NULL
RETURNING l.id, l.consumer_key, l.group_key;

-- name: mark_died_again
-- The replays of these letters died: waits for a replay that is being settled right now.
UPDATE weir.dead_letters SET replay_result = 'died' WHERE id = ANY(%(ids)s::uuid[]);

-- name: mark_results
-- What became of replays that are known to have ended well.
UPDATE weir.dead_letters SET replay_result = 'acked'
WHERE id = ANY(%(ids)s::uuid[]) AND replay_result IS NULL;

-- name: list_by_consumer
-- The newest dead letters of a consumer before a position.
SELECT id FROM weir.dead_letters WHERE consumer_key = %(lane)s AND $NEWEST_BEFORE;

-- name: list_by_group
-- The newest dead letters of a group before a position.
SELECT id FROM weir.dead_letters WHERE group_key = %(lane)s AND $NEWEST_BEFORE;

-- name: window_by_consumer
-- The next dead letters of a consumer after a cursor, in their original order; which of them a filter admits.
$WINDOW WHERE consumer_key = %(lane)s AND $NEXT_AFTER;

-- name: window_by_group
-- The next dead letters of a group after a cursor, in their original order; which of them a filter admits.
$WINDOW WHERE group_key = %(lane)s AND $NEXT_AFTER;

-- name: purge_by_consumer
-- Delete what a filter admits of the next dead letters of a consumer; what went, by group, and where it ended.
$PURGE_WINDOW WHERE consumer_key = %(lane)s AND $NEXT_AFTER $PURGE_ADMITTED;

-- name: purge_by_group
-- Delete what a filter admits of the next dead letters of a group; what went, by group, and where it ended.
$PURGE_WINDOW WHERE group_key = %(lane)s AND $NEXT_AFTER $PURGE_ADMITTED;

-- name: which_died
-- Which of these ids are dead letters, whatever was done about them since.
SELECT id FROM weir.dead_letters WHERE id = ANY(%(ids)s::uuid[]);
