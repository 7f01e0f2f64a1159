-- name: table_pages
-- How many pages the table has.
SELECT pg_relation_size('weir.dead_letters') / current_setting('block_size')::bigint;

-- name: arrivals
-- Where to cut the order of arrival into parts, guessed from some pages, and its end.
SELECT percentile_disc(%(shares)s::double precision[]) WITHIN GROUP (ORDER BY seq),
       (SELECT last_value FROM weir.dead_letters_seq_seq) + 1
FROM weir.dead_letters TABLESAMPLE SYSTEM (%(percent)s);

-- name: export_range
-- The dead letters of a range of arrivals, with whose they are.
SELECT c.organization, c.project, c.environment, c.queue, l.reason, l.error, l.died_at_ms
FROM weir.dead_letters AS l
JOIN weir.consumers AS c USING (consumer_key)
WHERE l.seq >= %(first)s AND l.seq < %(end)s AND l.replayed_at_ms IS NULL;
