-- name: arrivals
-- The first and the last place in the order of arrival.
SELECT min(seq), max(seq) FROM weir.dead_letters;

-- name: export_range
-- The dead letters of a range of arrivals, with whose they are.
SELECT c.organization, c.project, c.environment, c.queue, l.reason, l.error, l.died_at_ms
FROM weir.dead_letters AS l
JOIN weir.consumers AS c USING (consumer_key)
WHERE l.seq >= %(first)s AND l.seq < %(end)s AND l.replayed_at_ms IS NULL;
