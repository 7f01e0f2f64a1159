-- name: find_groups
-- The keys of some groups.
SELECT g.consumer_key, g.fingerprint, g.group_key
FROM weir.dead_letter_groups AS g
JOIN unnest(%(consumers)s::bigint[], %(fingerprints)s::text[]) AS w (consumer_key, fingerprint)
    USING (consumer_key, fingerprint);

-- name: full_consumers
-- Which of some consumers have as many groups as are kept apart.
SELECT consumer_key FROM weir.dead_letter_groups
WHERE consumer_key = ANY(%(consumers)s::bigint[])
GROUP BY consumer_key
HAVING count(*) >= %(limit)s;

-- name: add_groups
-- Make groups that are new; their counts grow with the deaths.
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
WHERE c.organization = %(organization)s AND c.project = %(project)s AND c.environment = %(environment)s
  AND g.fingerprint = %(fingerprint)s
ORDER BY g.group_key;

-- name: list_groups
-- The groups of an environment by fingerprint, the largest first, with the queues that they touch.
SELECT g.fingerprint,
       min(g.template) AS template,
       sum(g.dead_count) AS dead_count,
       sum(g.total_count) AS total_count,
       min(g.first_seen_ms) AS first_seen_ms,
       max(g.last_seen_ms) AS last_seen_ms,
       sum(g.heat * 0.5 ^ (least(greatest(%(now_ms)s - g.last_seen_ms, 0), 720000000) / 3600000.0)) AS heat,
       array_agg(c.queue ORDER BY g.dead_count DESC, c.queue) AS queues,
       (array_agg(g.sample_id ORDER BY g.last_seen_ms DESC))[1] AS sample_id,
       (array_agg(g.sample_error ORDER BY g.last_seen_ms DESC))[1] AS sample_error
FROM weir.dead_letter_groups AS g
JOIN weir.consumers AS c USING (consumer_key)
WHERE c.organization = %(organization)s AND c.project = %(project)s AND c.environment = %(environment)s
  AND (%(queue)s::text IS NULL OR c.queue = %(queue)s)
  AND g.dead_count > 0
GROUP BY g.fingerprint
ORDER BY dead_count DESC, g.fingerprint
LIMIT %(limit)s;
