-- name: record_deliveries
-- Add attempts to the delivery log, one row per element of the arrays.
INSERT INTO weir.delivery_log (organization, project, environment, queue, message_id, attempt, url, sent_at_ms,
                               duration_ms, verdict, status, error, excerpt)
SELECT * FROM unnest(%(organization)s::text[], %(project)s::text[], %(environment)s::text[], %(queue)s::text[],
                     %(message_id)s::text[], %(attempt)s::int[], %(url)s::text[], %(sent_at_ms)s::bigint[],
                     %(duration_ms)s::int[], %(verdict)s::text[], %(status)s::int[], %(error)s::text[],
                     %(excerpt)s::text[]);

-- name: deliveries_of_message
-- The outbound attempts of one message, oldest first.
SELECT queue, message_id, attempt, url, sent_at_ms, duration_ms, verdict, status, error, excerpt
FROM weir.delivery_log
WHERE message_id = %(message_id)s AND organization = %(organization)s AND project = %(project)s
  AND environment = %(environment)s
ORDER BY id;

-- name: forget_deliveries
-- Delete records that are older than the retention, a limited number at a time.
DELETE FROM weir.delivery_log
-- As an array, because for a set of unknown size the planner may read the whole table.
WHERE id = ANY (ARRAY(
    SELECT id FROM weir.delivery_log WHERE sent_at_ms < %(before_ms)s
    ORDER BY sent_at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
));

-- name: disable_endpoint
-- Disable an endpoint.
INSERT INTO weir.disabled_endpoints (organization, project, environment, url, disabled_at_ms, reason)
VALUES (%(organization)s, %(project)s, %(environment)s, %(url)s, %(disabled_at_ms)s, %(reason)s)
ON CONFLICT (organization, project, environment, url) DO NOTHING;

-- name: enable_endpoint
-- Enable an endpoint again.
DELETE FROM weir.disabled_endpoints
WHERE organization = %(organization)s AND project = %(project)s AND environment = %(environment)s AND url = %(url)s;

-- name: disabled_endpoints
-- Every disabled endpoint.
SELECT organization, project, environment, url FROM weir.disabled_endpoints;

-- name: disabled_endpoints_of
-- The disabled endpoints of an environment.
SELECT url, disabled_at_ms, reason FROM weir.disabled_endpoints WHERE $ENVIRONMENT;
