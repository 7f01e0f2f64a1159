-- name: try_lock_audit
-- Be the only audit of the installation until the transaction ends.
SELECT pg_try_advisory_xact_lock(7765, 0) AS locked;

-- name: be_gentle
-- Count with one core until the transaction ends: those who serve need the others.
SET LOCAL max_parallel_workers_per_gather = 0;

-- name: last_audit
-- The latest audit.
SELECT * FROM weir.dlq_audits ORDER BY id DESC LIMIT 1;

-- name: oldest_checked
-- All consumers, those that were checked longest ago first.
SELECT consumer_key, dead_count FROM weir.dlq_summary ORDER BY last_checked_at_ms, consumer_key;

-- name: recount_consumer
-- What the summary says of a consumer and what there is, in one snapshot.
SELECT s.dead_count,
       (SELECT count(*) FROM weir.dead_letters AS l
        WHERE l.consumer_key = s.consumer_key AND l.replayed_at_ms IS NULL) AS counted
FROM weir.dlq_summary AS s
WHERE s.consumer_key = %(key)s;

-- name: recount_groups
-- What the groups of a consumer say and what there is, in one snapshot.
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
-- Keep the newest thousand.
DELETE FROM weir.dlq_audits WHERE id < (SELECT max(id) - 1000 FROM weir.dlq_audits);

-- name: forget_replayed
-- Let go of lineage that is older than anybody asks for, a few rows at a time.
DELETE FROM weir.dead_letters
WHERE id IN (
    SELECT id FROM weir.dead_letters WHERE replayed_at_ms < %(before_ms)s
    ORDER BY replayed_at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
);
