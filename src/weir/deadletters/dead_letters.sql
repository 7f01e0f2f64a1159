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

-- part: HELD
coalesce(claimed_until_ms > %(now_ms)s, false)

-- part: LETTER_BYTES
octet_length(payload) + octet_length(envelope::text)

-- part: NEWEST_BEFORE
replayed_at_ms IS NULL AND ($ORIGIN_MS, $ORIGIN_ID) < (%(before_ms)s, %(before_id)s::uuid)
ORDER BY $ORIGIN_MS DESC, $ORIGIN_ID DESC
LIMIT %(limit)s

-- part: NEXT_AFTER
replayed_at_ms IS NULL AND ($ORIGIN_MS, $ORIGIN_ID) > (%(after_ms)s, %(after_id)s::uuid)
ORDER BY $ORIGIN_MS, $ORIGIN_ID
LIMIT %(limit)s

-- part: WINDOW
SELECT id, $ORIGIN_MS AS position_ms, $ORIGIN_ID AS position_id, $LETTER_BYTES AS bytes,
       octet_length(envelope::text) AS envelope_bytes, $HELD AS held, $FILTERED AND (
    seq <= %(high_water)s
    -- A resumed redrive also takes the replays that it sent itself and that died before it was resumed.
    OR seq <= %(retried_to)s AND EXISTS (
        SELECT FROM weir.dead_letters AS parent
        WHERE parent.id = l.replay_of AND parent.replay_task = %(action)s::uuid
    )
) AS admitted
FROM weir.dead_letters AS l

-- part: PURGE_WINDOW
WITH seen AS (
    SELECT id, $ORIGIN_MS AS position_ms, $ORIGIN_ID AS position_id, octet_length(payload) AS bytes, $HELD AS held,
           $FILTERED AND seq <= %(high_water)s AS admitted
    FROM weir.dead_letters

-- part: PURGE_ADMITTED
), win AS (
    -- It ends before the first letter that a redrive has in hand, and once the letters before have enough bytes.
    SELECT id, position_ms, position_id, admitted FROM (
        SELECT *, bool_or(held AND admitted) OVER walk AS blocked,
               coalesce(sum(bytes) FILTER (WHERE admitted) OVER walk, 0) - bytes AS bytes_before
        FROM seen WINDOW walk AS (ORDER BY position_ms, position_id ROWS UNBOUNDED PRECEDING)
    ) AS walked
    WHERE NOT blocked AND bytes_before < %(most_bytes)s
), gone AS (
    DELETE FROM weir.dead_letters AS l USING win
    WHERE l.id = win.id AND win.admitted AND l.replayed_at_ms IS NULL AND NOT $HELD
    RETURNING l.consumer_key, l.group_key
), tally AS (
    SELECT consumer_key, group_key, count(*) AS letters FROM gone GROUP BY consumer_key, group_key
), last AS (
    SELECT position_ms, position_id FROM win ORDER BY position_ms DESC, position_id DESC LIMIT 1
)
SELECT last.position_ms, last.position_id, (SELECT count(*) FROM seen) AS seen, (SELECT count(*) FROM win) AS scanned,
       (SELECT count(*) FROM win WHERE admitted) AS matched,
       tally.consumer_key, tally.group_key, tally.letters
FROM (VALUES (true)) AS always LEFT JOIN last ON true LEFT JOIN tally ON true

-- name: insert_letters
-- Store a batch of deaths; return the ids that were not stored before.
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
-- The first message of each letter's line; a letter that is not a replay is its own first message.
SELECT id, $ORIGIN_MS AS position_ms, $ORIGIN_ID AS position_id
FROM weir.dead_letters
WHERE id = ANY(%(ids)s::uuid[]);

-- name: select_letters
-- Whole letters by id, in their original order.
$WHOLE_LETTERS
WHERE l.id = ANY(%(ids)s::uuid[])
ORDER BY $ORIGIN_MS, $ORIGIN_ID;

-- name: sizes_of
-- How large letters are, in the given order.
SELECT l.id, $LETTER_BYTES AS bytes
FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY AS asked (id, place) JOIN weir.dead_letters AS l USING (id)
ORDER BY place;

-- name: replays_of
-- The replays of letters and what is known of them, without what they carried.
SELECT l.id, l.replay_id, l.replay_result, c.organization, c.project, c.environment, c.queue
FROM weir.dead_letters AS l
JOIN weir.consumers AS c USING (consumer_key)
WHERE l.id = ANY(%(ids)s::uuid[]) AND l.replay_id IS NOT NULL;

-- name: next_deaths
-- The next letters of a consumer after an arrival that are still dead, in the order of arrival, and how large each is.
SELECT id, seq, $LETTER_BYTES AS bytes FROM weir.dead_letters
WHERE consumer_key = %(consumer)s AND replayed_at_ms IS NULL AND seq > %(after)s
ORDER BY seq
LIMIT %(limit)s;

-- name: claim_letters
-- Claim letters that are still dead and that nobody has in hand, until a deadline; return their ids.
UPDATE weir.dead_letters AS l SET claim = %(claim)s::uuid, claimed_until_ms = %(until_ms)s
FROM (
    SELECT id FROM weir.dead_letters
    WHERE id = ANY(%(ids)s::uuid[]) AND replayed_at_ms IS NULL AND NOT $HELD
    -- A letter that another transaction deletes or claims just now is not waited for.
    FOR NO KEY UPDATE SKIP LOCKED
) AS free
WHERE l.id = free.id
RETURNING l.id;

-- name: still_dead
-- The ids among these of letters that are still dead.
SELECT id FROM weir.dead_letters WHERE id = ANY(%(ids)s::uuid[]) AND replayed_at_ms IS NULL;

-- name: release_letters
-- Give letters back that were claimed and not sent.
UPDATE weir.dead_letters SET claim = NULL, claimed_until_ms = NULL
WHERE id = ANY(%(ids)s::uuid[]) AND claim = %(claim)s::uuid;

-- name: lock_dead
-- Lock letters that are still dead, so that no redrive takes them in hand, and tell which ones are in a hand already.
SELECT id, $HELD AS held FROM weir.dead_letters
WHERE id = ANY(%(ids)s::uuid[]) AND replayed_at_ms IS NULL
ORDER BY id
FOR UPDATE;

-- name: delete_letters
-- Delete letters that are still dead and that no redrive has in hand; return their consumers and groups.
DELETE FROM weir.dead_letters
WHERE id = ANY(%(ids)s::uuid[]) AND replayed_at_ms IS NULL AND NOT $HELD
RETURNING id, consumer_key, group_key;

-- name: mark_replayed
-- Write down the replays of letters, which stop counting as dead.
UPDATE weir.dead_letters AS l
SET replay_id = r.replay_id, replayed_at_ms = %(now_ms)s, replay_task = %(action)s::uuid,
    claim = NULL, claimed_until_ms = NULL
FROM unnest(%(ids)s::uuid[], %(replay_ids)s::uuid[]) AS r (id, replay_id)
WHERE l.id = r.id AND l.replayed_at_ms IS NULL
RETURNING l.id, l.consumer_key, l.group_key;

-- name: mark_died_again
-- Mark that the replays of these letters died, also before the redrive that sent them wrote down that it did.
UPDATE weir.dead_letters SET replay_result = 'died' WHERE id = ANY(%(ids)s::uuid[]);

-- name: mark_results
-- Mark that the replays of these letters were acked, unless their result is known already.
UPDATE weir.dead_letters SET replay_result = 'acked'
WHERE id = ANY(%(ids)s::uuid[]) AND replay_result IS NULL;

-- name: list_by_consumer
-- The newest dead letters of a consumer before a position, and how large each is.
SELECT id, $ORIGIN_MS AS position_ms, $ORIGIN_ID AS position_id, $LETTER_BYTES AS bytes FROM weir.dead_letters WHERE consumer_key = %(walk_key)s AND $NEWEST_BEFORE;

-- name: list_by_group
-- The newest dead letters of a group before a position, and how large each is.
SELECT id, $ORIGIN_MS AS position_ms, $ORIGIN_ID AS position_id, $LETTER_BYTES AS bytes FROM weir.dead_letters WHERE group_key = %(walk_key)s AND $NEWEST_BEFORE;

-- name: window_by_consumer
-- The next dead letters of a consumer after a cursor, in their original order, and whether a filter admits each.
$WINDOW WHERE consumer_key = %(walk_key)s AND $NEXT_AFTER;

-- name: window_by_group
-- The next dead letters of a group after a cursor, in their original order, and whether a filter admits each.
$WINDOW WHERE group_key = %(walk_key)s AND $NEXT_AFTER;

-- name: purge_by_consumer
-- Look at a consumer's next dead letters and delete the ones that a filter admits; return counts by group and the
-- last position.
$PURGE_WINDOW WHERE consumer_key = %(walk_key)s AND $NEXT_AFTER $PURGE_ADMITTED;

-- name: purge_by_group
-- Look at a group's next dead letters and delete the ones that a filter admits; return counts and the last position.
$PURGE_WINDOW WHERE group_key = %(walk_key)s AND $NEXT_AFTER $PURGE_ADMITTED;

-- name: which_died
-- The ids among these that are dead letters, still dead or replayed since.
SELECT id FROM weir.dead_letters WHERE id = ANY(%(ids)s::uuid[]);

-- name: try_lock
-- Take an advisory lock of this room until the transaction ends, unless somebody has it.
SELECT pg_try_advisory_xact_lock(%(lock)s, %(part)s) AS locked;

-- name: last_batch
-- The batch that a shard's last mover stored, unless the caller knows that it was dropped.
SELECT batch, message_ids FROM weir.mover_checkpoints
WHERE shard = %(shard)s AND batch IS DISTINCT FROM %(known)s::uuid;

-- name: save_batch
-- Remember which batch was stored, in the transaction that stores it.
INSERT INTO weir.mover_checkpoints (shard, batch, message_ids, moved_at_ms)
VALUES (%(shard)s, %(batch)s, %(ids)s::uuid[], %(now_ms)s)
ON CONFLICT (shard) DO UPDATE
SET batch = excluded.batch, message_ids = excluded.message_ids, moved_at_ms = excluded.moved_at_ms;

-- name: begin_batch
-- Count a batch before it is read. If the batch before was not stored, batches get smaller; if it was, larger.
INSERT INTO weir.mover_tries AS t (shard, failures, after_batch, first, tries)
SELECT %(shard)s, 0, (SELECT batch FROM weir.mover_checkpoints WHERE shard = %(shard)s), %(first)s::uuid, 1
ON CONFLICT (shard) DO UPDATE SET
    failures = CASE
        WHEN t.after_batch IS DISTINCT FROM excluded.after_batch THEN greatest(0, t.failures - 1)
        ELSE least(t.failures + 1, 100)
    END,
    tries = CASE WHEN t.first = excluded.first AND t.failures >= %(alone)s THEN t.tries + 1 ELSE 1 END,
    after_batch = excluded.after_batch,
    first = excluded.first
RETURNING failures, tries;

-- name: count_redeaths
-- Count the replays of each redrive that died again; an action that does not exist is left out.
INSERT INTO weir.redrive_deaths (task_id, deaths)
SELECT d.task_id, d.deaths
FROM unnest(%(actions)s::uuid[], %(deaths)s::bigint[]) AS d (task_id, deaths)
JOIN weir.dead_letter_tasks AS t ON t.id = d.task_id
ORDER BY d.task_id
ON CONFLICT (task_id) DO UPDATE SET deaths = weir.redrive_deaths.deaths + excluded.deaths;

-- name: table_pages
-- The number of pages of the table.
SELECT pg_relation_size('weir.dead_letters') / current_setting('block_size')::bigint;

-- name: arrivals
-- Where to cut the order of arrival into parts, estimated from some pages, and its end.
SELECT percentile_disc(%(shares)s::double precision[]) WITHIN GROUP (ORDER BY seq),
       (SELECT last_value FROM weir.dead_letters_seq_seq) + 1
FROM weir.dead_letters TABLESAMPLE SYSTEM (%(percent)s);

-- name: export_range
-- The dead letters of a range of arrivals, with their queues.
SELECT c.organization, c.project, c.environment, c.queue, l.reason, l.error, l.died_at_ms
FROM weir.dead_letters AS l
JOIN weir.consumers AS c USING (consumer_key)
WHERE l.seq >= %(first)s AND l.seq < %(end)s AND l.replayed_at_ms IS NULL;
