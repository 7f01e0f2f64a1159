-- name: alert_counts
-- How many alerts fire, how many notifications wait, and when the rules were last evaluated.
SELECT
    (SELECT count(*) FROM weir.alerts WHERE state = 'firing') AS firing,
    (SELECT count(*) FROM weir.alert_notifications WHERE state = 'waiting') AS waiting,
    l.evaluated_at_ms,
    l.took_ms
FROM (SELECT 1) AS one
LEFT JOIN weir.alert_leases AS l ON l.name = 'evaluator';
