-- Creates the user with which Grafana reads, and limits it to the rows of one organization. Run it as an administrator.
CREATE SETTINGS PROFILE IF NOT EXISTS grafana SETTINGS readonly = 1, max_execution_time = 30 CHANGEABLE_IN_READONLY;
CREATE USER IF NOT EXISTS grafana IDENTIFIED BY 'change me' SETTINGS PROFILE 'grafana';
GRANT SELECT ON weir.* TO grafana;
CREATE ROW POLICY IF NOT EXISTS grafana_queues ON weir.queue_metrics_5s, weir.queue_metrics_1m, weir.queue_metrics_1h
    USING organization = 'default' TO grafana;
CREATE ROW POLICY IF NOT EXISTS grafana_environments ON weir.environment_metrics_5s, weir.environment_metrics_1m, weir.environment_metrics_1h
    USING organization = 'default' TO grafana;
