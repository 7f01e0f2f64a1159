-- name: change_summary
-- Change the counts of some consumers, locking their rows by key; which rows there were.
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

-- name: change_groups
-- Change the counts of some groups, locking their rows by key.
WITH locked AS (
    SELECT group_key FROM weir.dead_letter_groups
    WHERE group_key = ANY(%(keys)s::bigint[])
    ORDER BY group_key FOR UPDATE
)
UPDATE weir.dead_letter_groups AS g
SET dead_count = g.dead_count + d.delta
FROM locked
JOIN unnest(%(keys)s::bigint[], %(deltas)s::bigint[]) AS d (group_key, delta) USING (group_key)
WHERE g.group_key = locked.group_key;

-- name: grow_groups
-- Add deaths to some groups: counts, first and last time, and the heat that decays by half an hour without any.
WITH locked AS (
    SELECT group_key FROM weir.dead_letter_groups
    WHERE group_key = ANY(%(keys)s::bigint[])
    ORDER BY group_key FOR UPDATE
)
UPDATE weir.dead_letter_groups AS g
SET dead_count = g.dead_count + d.deaths,
    total_count = g.total_count + d.deaths,
    heat = g.heat * 0.5 ^ (least(greatest(d.last_ms - g.last_seen_ms, 0), 720000000) / 3600000.0) + d.deaths,
    first_seen_ms = least(g.first_seen_ms, d.first_ms),
    last_seen_ms = greatest(g.last_seen_ms, d.last_ms)
FROM locked
JOIN unnest(%(keys)s::bigint[], %(deaths)s::bigint[], %(firsts)s::bigint[], %(lasts)s::bigint[])
    AS d (group_key, deaths, first_ms, last_ms) USING (group_key)
WHERE g.group_key = locked.group_key;

-- name: count_missing
-- Count the consumers that have no row yet; a row that somebody else makes meanwhile is left to them.
INSERT INTO weir.dlq_summary (
    consumer_key, organization, project, environment, queue, channel_id, channel_name,
    consumer_id, consumer_name, dead_count, last_checked_at_ms
)
SELECT c.consumer_key, c.organization, c.project, c.environment, c.queue, c.channel_id, c.channel_name,
       c.consumer_id, c.consumer_name,
       (SELECT count(*) FROM weir.dead_letters AS l
        WHERE l.consumer_key = c.consumer_key AND l.replayed_at_ms IS NULL),
       %(now_ms)s
FROM weir.consumers AS c
WHERE (%(keys)s::bigint[] IS NULL OR c.consumer_key = ANY(%(keys)s::bigint[]))
  AND NOT EXISTS (SELECT FROM weir.dlq_summary AS s WHERE s.consumer_key = c.consumer_key)
ORDER BY c.consumer_key
ON CONFLICT (consumer_key) DO NOTHING
RETURNING consumer_key;

-- name: read_summary
-- The summary inside a scope, and with 0 the queues that are defined and in which nothing ever died.
SELECT organization, project, environment, queue, channel_id, channel_name, consumer_id, consumer_name,
       dead_count, last_checked_at_ms
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
-- How many are dead in each queue of an environment.
SELECT queue, dead_count FROM weir.dlq_summary
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s;
