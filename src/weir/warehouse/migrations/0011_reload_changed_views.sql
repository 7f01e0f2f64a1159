-- Reload the views that 0007 changed. Until it is loaded again, a view whose query was changed gives its inserts other
-- deduplication ids than after a restart: an insert from before a restart, repeated after it, would count twice (0014).
DETACH TABLE IF EXISTS queue_metrics_5s_view;

ATTACH TABLE IF NOT EXISTS queue_metrics_5s_view;

DETACH TABLE IF EXISTS queue_metrics_1m_view;

ATTACH TABLE IF NOT EXISTS queue_metrics_1m_view;

DETACH TABLE IF EXISTS queue_metrics_1h_view;

ATTACH TABLE IF NOT EXISTS queue_metrics_1h_view;

DETACH TABLE IF EXISTS environment_metrics_5s_view;

ATTACH TABLE IF NOT EXISTS environment_metrics_5s_view;

DETACH TABLE IF EXISTS environment_metrics_1m_view;

ATTACH TABLE IF NOT EXISTS environment_metrics_1m_view;

DETACH TABLE IF EXISTS environment_metrics_1h_view;

ATTACH TABLE IF NOT EXISTS environment_metrics_1h_view;

DETACH TABLE IF EXISTS queue_ledger_view;

ATTACH TABLE IF NOT EXISTS queue_ledger_view;
