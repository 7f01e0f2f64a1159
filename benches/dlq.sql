-- name: index_definitions
-- The definitions of the indexes of the dead letters, except for the primary key.
SELECT indexname, indexdef FROM pg_indexes
WHERE schemaname = 'weir' AND tablename = 'dead_letters' AND indexname <> 'dead_letters_pkey';

-- name: add_groups
-- Add one group per consumer and kind of error; the keys of a consumer's groups are consecutive.
INSERT INTO weir.dead_letter_groups (
    consumer_key, fingerprint, template, sample_id, sample_error, first_seen_ms, last_seen_ms
)
SELECT c.key, md5('group ' || g), (%(errors)s::text[])[1 + g %% 4] || ' in step ' || chr(97 + g), uuidv7(),
       'sample ' || g, %(now_ms)s, %(now_ms)s
FROM unnest(%(keys)s::bigint[]) WITH ORDINALITY AS c (key, place)
CROSS JOIN generate_series(0, %(kinds)s - 1) AS g
ORDER BY c.place, g;

-- name: add_letters
-- Add dead letters of a span of time, roughly in its order; most belong to the first consumers and kinds of errors.
WITH known AS (
    SELECT array_agg(first ORDER BY place) AS firsts FROM (
        SELECT c.place, min(g.group_key) AS first
        FROM unnest(%(keys)s::bigint[]) WITH ORDINALITY AS c (key, place)
        JOIN weir.dead_letter_groups AS g ON g.consumer_key = c.key
        GROUP BY c.place
    ) AS each
), chosen AS (
    SELECT 1 + floor(power(random(), 2) * cardinality(%(keys)s::bigint[]))::int AS place,
           floor(power(random(), 2) * %(kinds)s)::int AS kind,
           %(from_ms)s + n * %(span_ms)s::bigint / %(count)s + (random() * 60000)::bigint AS enqueued_at_ms,
           n
    FROM generate_series(1, %(count)s) AS n
)
INSERT INTO weir.dead_letters (
    id, consumer_key, group_key, enqueued_at_ms, died_at_ms, attempts, max_attempts, reason, error,
    payload, envelope
)
SELECT uuidv7(), (%(keys)s::bigint[])[place], firsts[place] + kind, enqueued_at_ms, enqueued_at_ms + 15000,
       5, 5, 'attempts', 'connect to 10.0.' || kind || '.' || n %% 250 || ':5432 refused in step ' || kind,
       convert_to('{"order": ' || n || ', "filler": "' || repeat('x', %(size)s) || '"}', 'UTF8'),
       '{"headers": {"content-type": "application/json"}, "key": null, "priority": 4, "idempotency_key": null}'
FROM chosen, known;

-- name: count_groups
-- Count the dead letters of every group.
UPDATE weir.dead_letter_groups AS g
SET dead_count = n, total_count = n, first_seen_ms = first, last_seen_ms = last
FROM (
    SELECT group_key, count(*) AS n, min(died_at_ms) AS first, max(died_at_ms) AS last
    FROM weir.dead_letters GROUP BY group_key
) AS counted
WHERE counted.group_key = g.group_key;

-- name: job_status
-- The count that the summary replaces: over the whole table, joined with the consumers.
SELECT c.channel_id, c.channel_name, c.consumer_id, c.consumer_name, count(l.id) AS dead
FROM weir.dead_letters AS l JOIN weir.consumers AS c USING (consumer_key)
WHERE l.replayed_at_ms IS NULL
GROUP BY c.channel_id, c.channel_name, c.consumer_id, c.consumer_name;

-- name: table_size
-- The size of the dead letters and of their indexes on disk.
SELECT pg_table_size('weir.dead_letters') AS heap, pg_indexes_size('weir.dead_letters') AS indexes;
