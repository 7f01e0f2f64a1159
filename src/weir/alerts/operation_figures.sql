-- name: operation_figures
-- For each environment and window: how many operations wait, since when, and how many failed in the window.
SELECT
    (
        SELECT count(*) FROM weir.operations AS o
        WHERE o.organization = w.organization AND o.project = w.project AND o.environment = w.environment
          AND o.status IN ('pending', 'processing')
    ) AS waiting,
    (
        SELECT coalesce(weir.clock_ms() - min(o.created_ms), 0) FROM weir.operations AS o
        WHERE o.organization = w.organization AND o.project = w.project AND o.environment = w.environment
          AND o.status IN ('pending', 'processing')
    ) AS oldest_age_ms,
    (
        SELECT count(*) FROM weir.operations AS o
        WHERE o.organization = w.organization AND o.project = w.project AND o.environment = w.environment
          AND o.status = 'failed' AND o.finished_ms > weir.clock_ms() - w.window_ms
    ) AS failed
FROM unnest(%(organization)s::text[], %(project)s::text[], %(environment)s::text[], %(window_ms)s::bigint[])
    WITH ORDINALITY AS w (organization, project, environment, window_ms, place)
ORDER BY w.place;
