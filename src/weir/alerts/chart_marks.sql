-- name: marks
-- Everything in PostgreSQL that is marked on the charts of a span, newest first: alerts, annotations, applied
-- specs, and pauses with the moment at which each ended.
SELECT kind, at_ms, until_ms, text, queue
FROM (
    SELECT 'alert' AS kind, fired_at_ms AS at_ms, resolved_at_ms AS until_ms, rule->>'name' AS text,
           nullif(queue, '') AS queue
    FROM weir.alerts
    WHERE $ENVIRONMENT AND fired_at_ms < %(end_ms)s AND coalesce(resolved_at_ms, %(end_ms)s) >= %(start_ms)s
    UNION ALL
    SELECT 'annotation', at_ms, NULL, text, NULL
    FROM weir.annotations
    WHERE $ENVIRONMENT AND at_ms >= %(start_ms)s AND at_ms < %(end_ms)s
    UNION ALL
    SELECT 'spec', applied_at_ms, NULL, 'revision ' || revision || ' of ' || file || ' applied', NULL
    FROM weir.applied_specs
    WHERE $ENVIRONMENT AND applied_at_ms >= %(start_ms)s AND applied_at_ms < %(end_ms)s
    UNION ALL
    SELECT 'pause', paused.at_ms, resumed.at_ms, paused.target || ' paused', paused.target
    FROM weir.audit_log AS paused
    LEFT JOIN LATERAL (
        SELECT min(later.at_ms) AS at_ms
        FROM weir.audit_log AS later
        WHERE later.organization = paused.organization AND later.project = paused.project
          AND later.environment = paused.environment AND later.target = paused.target
          AND later.action = 'queue.resume' AND later.at_ms >= paused.at_ms
    ) AS resumed ON true
    WHERE paused.organization = %(organization)s AND paused.project = %(project)s
      AND paused.environment = %(environment)s AND paused.action = 'queue.pause'
      AND paused.at_ms < %(end_ms)s AND coalesce(resumed.at_ms, %(end_ms)s) >= %(start_ms)s
) AS found
WHERE %(queue)s::text IS NULL OR queue IS NULL OR queue = %(queue)s
ORDER BY at_ms DESC
LIMIT %(limit)s
