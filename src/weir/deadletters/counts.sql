-- part: SUMMARY_NAMES
organization, project, environment, queue, channel_id, channel_name, consumer_id, consumer_name

-- part: COUNTED
(SELECT count(*) FROM weir.dead_letters AS l
 WHERE l.consumer_key = c.consumer_key AND l.replayed_at_ms IS NULL)

-- part: LOCKED_GROUPS
WITH locked AS (
    SELECT group_key FROM weir.dead_letter_groups
    WHERE group_key = ANY(%(keys)s::bigint[])
    ORDER BY group_key FOR UPDATE
)
UPDATE weir.dead_letter_groups AS g

-- name: change_summary
-- Change the counts of some consumers, locking their rows by key; return the rows that exist.
WITH locked AS (
    SELECT consumer_key FROM weir.dlq_summary
    WHERE consumer_key = ANY(%(keys)s::bigint[])
    ORDER BY consumer_key FOR UPDATE
)
UPDATE weir.dlq_summary AS s
SET dead_count = s.dead_count + d.delta
FROM locked
JOIN unnest(%(keys)s::bigint[], %(deltas)s::bigint[]) AS d (consumer_key, delta) USING (consumer_key)
WHERE s.consumer_key = locked.consumer_key
RETURNING s.consumer_key;

-- name: count_missing
-- Count the consumers that have no row yet; a row that another transaction adds at the same time stays as it is.
INSERT INTO weir.dlq_summary (consumer_key, $SUMMARY_NAMES, dead_count, last_checked_at_ms)
SELECT consumer_key, $SUMMARY_NAMES, $COUNTED, %(now_ms)s
FROM weir.consumers AS c
WHERE (%(keys)s::bigint[] IS NULL OR consumer_key = ANY(%(keys)s::bigint[]))
  AND NOT EXISTS (SELECT FROM weir.dlq_summary AS s WHERE s.consumer_key = c.consumer_key)
ORDER BY consumer_key
ON CONFLICT (consumer_key) DO NOTHING
RETURNING consumer_key;

-- name: read_summary
-- The summary inside a scope; defined queues in which nothing ever died are in it with 0.
SELECT $SUMMARY_NAMES, dead_count, last_checked_at_ms
FROM weir.dlq_summary
WHERE $SCOPE
UNION ALL
SELECT organization, project, environment, queue, '', '', queue, queue, 0, defined_at_ms
FROM weir.queue_definitions AS d
WHERE $SCOPE AND NOT EXISTS (
    SELECT FROM weir.dlq_summary AS s
    WHERE (s.organization, s.project, s.environment, s.queue)
        = (d.organization, d.project, d.environment, d.queue)
)
ORDER BY organization, project, environment, channel_id, consumer_id;

-- name: counts_of
-- The number of dead letters of each queue of an environment.
SELECT queue, dead_count FROM weir.dlq_summary WHERE $ENVIRONMENT;

-- name: change_groups
-- Change the counts of some groups, locking their rows by key.
$LOCKED_GROUPS
SET dead_count = g.dead_count + d.delta
FROM locked
JOIN unnest(%(keys)s::bigint[], %(deltas)s::bigint[]) AS d (group_key, delta) USING (group_key)
WHERE g.group_key = locked.group_key;

-- name: grow_groups
-- Add deaths to some groups: counts, heat, and the first and last time.
$LOCKED_GROUPS
SET dead_count = g.dead_count + at.deaths,
    total_count = g.total_count + at.deaths,
    heat = $HEAT_LEFT + at.deaths,
    first_seen_ms = least(g.first_seen_ms, at.first_ms),
    last_seen_ms = greatest(g.last_seen_ms, at.last_ms)
FROM locked
JOIN unnest(%(keys)s::bigint[], %(deaths)s::bigint[], %(firsts)s::bigint[], %(lasts)s::bigint[])
    AS at (group_key, deaths, first_ms, last_ms) USING (group_key)
WHERE g.group_key = locked.group_key;

-- name: find_groups
-- The keys of some groups.
SELECT g.consumer_key, g.fingerprint, g.group_key
FROM weir.dead_letter_groups AS g
JOIN unnest(%(consumers)s::bigint[], %(fingerprints)s::text[]) AS w (consumer_key, fingerprint)
    USING (consumer_key, fingerprint);

-- name: full_consumers
-- The consumers among these that have as many groups as a consumer may have.
SELECT consumer_key FROM weir.dead_letter_groups
WHERE consumer_key = ANY(%(consumers)s::bigint[])
GROUP BY consumer_key
HAVING count(*) >= %(limit)s;

-- name: add_groups
-- Add new groups; their counts grow with the deaths.
INSERT INTO weir.dead_letter_groups (
    consumer_key, fingerprint, template, sample_id, sample_error, first_seen_ms, last_seen_ms
)
SELECT consumer_key, fingerprint, template, sample_id, sample_error, at_ms, at_ms
FROM unnest(
    %(consumers)s::bigint[], %(fingerprints)s::text[], %(templates)s::text[],
    %(samples)s::uuid[], %(errors)s::text[], %(times)s::bigint[]
) AS new (consumer_key, fingerprint, template, sample_id, sample_error, at_ms)
ON CONFLICT DO NOTHING;

-- name: group_keys
-- The groups of one fingerprint in an environment.
SELECT g.consumer_key, g.group_key
FROM weir.dead_letter_groups AS g
JOIN weir.consumers AS c USING (consumer_key)
WHERE $ENVIRONMENT AND g.fingerprint = %(fingerprint)s
ORDER BY g.group_key;

-- name: list_groups
-- The groups of an environment by fingerprint, the largest first, with their queues.
SELECT g.fingerprint,
       min(g.template) AS template,
       sum(g.dead_count) AS dead_count,
       sum(g.total_count) AS total_count,
       min(g.first_seen_ms) AS first_seen_ms,
       max(g.last_seen_ms) AS last_seen_ms,
       sum($HEAT_LEFT) AS heat,
       array_agg(c.queue ORDER BY g.dead_count DESC, c.queue) AS queues,
       (array_agg(g.sample_id ORDER BY g.last_seen_ms DESC))[1] AS sample_id,
       (array_agg(g.sample_error ORDER BY g.last_seen_ms DESC))[1] AS sample_error
FROM weir.dead_letter_groups AS g
JOIN weir.consumers AS c USING (consumer_key)
CROSS JOIN (SELECT %(now_ms)s::bigint AS last_ms) AS at
WHERE $ENVIRONMENT AND (%(queue)s::text IS NULL OR c.queue = %(queue)s) AND g.dead_count > 0
GROUP BY g.fingerprint
ORDER BY dead_count DESC, g.fingerprint
LIMIT %(limit)s;

-- name: use_one_core
-- Count with one core until the transaction ends: requests need the others.
SET LOCAL max_parallel_workers_per_gather = 0;

-- name: last_audit
-- The latest audit.
SELECT * FROM weir.dlq_audits ORDER BY id DESC LIMIT 1;

-- name: oldest_checked
-- All consumers, the one that was checked longest ago first.
SELECT consumer_key, dead_count FROM weir.dlq_summary ORDER BY last_checked_at_ms, consumer_key;

-- name: recount_consumer
-- The count of a consumer in the summary and the true one, in one snapshot.
SELECT c.dead_count, $COUNTED AS counted FROM weir.dlq_summary AS c WHERE c.consumer_key = %(key)s;

-- name: recount_groups
-- The counts of a consumer's groups and the true ones, in one snapshot.
SELECT g.group_key, g.dead_count,
       (SELECT count(*) FROM weir.dead_letters AS l
        WHERE l.group_key = g.group_key AND l.replayed_at_ms IS NULL) AS counted
FROM weir.dead_letter_groups AS g
WHERE g.consumer_key = %(key)s;

-- name: mark_checked
-- Move a consumer's checkpoint.
UPDATE weir.dlq_summary SET last_checked_at_ms = %(now_ms)s WHERE consumer_key = %(key)s;

-- name: save_audit
-- Publish what an audit found.
INSERT INTO weir.dlq_audits (started_at_ms, finished_at_ms, consumers, letters, drift)
VALUES (%(started_at_ms)s, %(finished_at_ms)s, %(consumers)s, %(letters)s, %(drift)s);

-- name: trim_audits
-- Delete all but the newest thousand audits.
DELETE FROM weir.dlq_audits WHERE id < (SELECT max(id) - 1000 FROM weir.dlq_audits);

-- name: forget_replayed
-- Delete replayed letters that are older than the retention, a few rows at a time.
DELETE FROM weir.dead_letters
-- As an array, because for a set of unknown size the planner may read the whole table.
WHERE id = ANY (ARRAY(
    SELECT id FROM weir.dead_letters WHERE replayed_at_ms < %(before_ms)s
    ORDER BY replayed_at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
));
