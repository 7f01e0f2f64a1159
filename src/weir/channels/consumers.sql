-- part: WANTED_QUEUES
unnest(%(organizations)s::text[], %(projects)s::text[], %(environments)s::text[], %(queues)s::text[])
    AS w (organization, project, environment, queue)

-- name: find_consumers
-- The keys of the consumers of some queues.
SELECT c.organization, c.project, c.environment, c.queue, c.consumer_key
FROM weir.consumers AS c
JOIN $WANTED_QUEUES USING (organization, project, environment, queue);

-- name: find_consumer
-- The key of the consumer of one queue.
SELECT consumer_key FROM weir.consumers WHERE $ENVIRONMENT AND queue = %(queue)s;

-- name: consumers_of
-- The keys of all consumers of an environment.
SELECT consumer_key FROM weir.consumers WHERE $ENVIRONMENT ORDER BY consumer_key;

-- name: add_consumers
-- Give queues their implicit consumer: no channel, and the queue's own name.
INSERT INTO weir.consumers (organization, project, environment, queue, consumer_id, consumer_name, created_at_ms)
SELECT w.organization, w.project, w.environment, w.queue, w.queue, w.queue, %(now_ms)s
FROM $WANTED_QUEUES
ON CONFLICT DO NOTHING;

-- name: add_summaries
-- Start the counts of new consumers at 0, so that `/dlq-status` lists a consumer before its first death.
INSERT INTO weir.dlq_summary (
    consumer_key, organization, project, environment, queue, channel_id, channel_name,
    consumer_id, consumer_name, dead_count, last_checked_at_ms
)
SELECT consumer_key, organization, project, environment, queue, channel_id, channel_name,
       consumer_id, consumer_name, 0, %(now_ms)s
FROM weir.consumers WHERE consumer_key = ANY(%(keys)s::bigint[])
ORDER BY consumer_key
ON CONFLICT DO NOTHING;
