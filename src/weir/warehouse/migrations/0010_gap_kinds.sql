-- Why a span is unknown: `dropped` before it was read, or `switched_off` by somebody. The latter has an empty `to_id`
-- until metrics are on again.
ALTER TABLE metric_gaps ADD COLUMN IF NOT EXISTS kind LowCardinality(String) DEFAULT 'dropped';
