-- name: recent_errors
-- What messages of some queues died of lately, the most frequent first.
SELECT c.queue, g.sample_error, g.last_seen_ms,
       g.heat * 0.5 ^ (least(greatest(%(now_ms)s - g.last_seen_ms, 0), 720000000) / 3600000.0) AS heat
FROM weir.dead_letter_groups AS g
JOIN weir.consumers AS c USING (consumer_key)
WHERE c.organization = %(organization)s AND c.project = %(project)s AND c.environment = %(environment)s
  AND c.queue = ANY(%(queues)s::text[]) AND g.last_seen_ms >= %(since_ms)s
ORDER BY heat DESC
LIMIT 10000;
