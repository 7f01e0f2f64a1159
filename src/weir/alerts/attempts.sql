-- name: recent_errors
-- The errors that messages of these queues died of lately, the most frequent first.
SELECT c.queue, g.sample_error, g.last_seen_ms, $HEAT_LEFT AS heat
FROM weir.dead_letter_groups AS g
JOIN weir.consumers AS c USING (consumer_key)
CROSS JOIN (SELECT %(now_ms)s::bigint AS last_ms) AS at
WHERE c.organization = %(organization)s AND c.project = %(project)s AND c.environment = %(environment)s
  AND c.queue = ANY(%(queues)s::text[]) AND g.last_seen_ms >= %(since_ms)s
ORDER BY heat DESC
LIMIT 10000;

-- name: failed_attempts
-- The newest failed attempts of workers at messages of these queues.
SELECT q.queue, a.error, a.finished_at_ms
FROM unnest(%(queues)s::text[]) AS q (queue)
CROSS JOIN LATERAL (
    SELECT m.error, m.finished_at_ms
    FROM weir.message_attempts AS m
    WHERE m.organization = %(organization)s AND m.project = %(project)s AND m.environment = %(environment)s
      AND m.queue = q.queue AND m.ending IN ('failed', 'dead') AND m.finished_at_ms >= %(since_ms)s
    ORDER BY m.finished_at_ms DESC
    LIMIT %(limit)s
) AS a;

-- name: handler_times
-- How many attempts of these queues ended and failed, and how long they ran: just now, and usually.
SELECT queue,
       coalesce(sum(attempts) FILTER (WHERE bucket_ms >= %(now_ms)s), 0)::bigint AS ended,
       coalesce(sum(failed) FILTER (WHERE bucket_ms >= %(now_ms)s), 0)::bigint AS failed,
       coalesce(sum(handler_ms) FILTER (WHERE bucket_ms >= %(now_ms)s), 0)::bigint AS ended_ms,
       coalesce(sum(attempts) FILTER (WHERE bucket_ms < %(split_ms)s), 0)::bigint AS usual,
       coalesce(sum(handler_ms) FILTER (WHERE bucket_ms < %(split_ms)s), 0)::bigint AS usual_ms
FROM weir.handler_times
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s
  AND queue = ANY(%(queues)s::text[]) AND bucket_ms >= %(since_ms)s
GROUP BY queue;

-- name: disabled_endpoints_of
-- The disabled endpoints of an environment.
SELECT url, reason FROM weir.disabled_endpoints
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s;
