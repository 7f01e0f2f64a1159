-- Creates the user with which Grafana reads, and limits it to the rows of one organization. Run it as an administrator, again
-- after each new release. A table is named in a grant only if a policy below filters its rows, or if no tenant can be told from it.
CREATE SETTINGS PROFILE IF NOT EXISTS grafana SETTINGS readonly = 1, max_execution_time = 30 CHANGEABLE_IN_READONLY;
CREATE USER IF NOT EXISTS grafana IDENTIFIED BY 'change me' SETTINGS PROFILE 'grafana';
-- An earlier release granted every table, and filtered only six.
REVOKE SELECT ON weir.* FROM grafana;
GRANT SELECT ON weir.queue_metrics_5s TO grafana;
GRANT SELECT ON weir.queue_metrics_1m TO grafana;
GRANT SELECT ON weir.queue_metrics_1h TO grafana;
GRANT SELECT ON weir.environment_metrics_5s TO grafana;
GRANT SELECT ON weir.environment_metrics_1m TO grafana;
GRANT SELECT ON weir.environment_metrics_1h TO grafana;
-- The shards and times of lost events; their numbers are those of all tenants.
GRANT SELECT(metric, shard, from_at, to_at, reason) ON weir.metric_gaps TO grafana;
CREATE ROW POLICY IF NOT EXISTS grafana_queues ON weir.queue_metrics_5s, weir.queue_metrics_1m, weir.queue_metrics_1h
    USING organization = 'default' TO grafana;
CREATE ROW POLICY IF NOT EXISTS grafana_environments ON weir.environment_metrics_5s, weir.environment_metrics_1m, weir.environment_metrics_1h
    USING organization = 'default' TO grafana;
