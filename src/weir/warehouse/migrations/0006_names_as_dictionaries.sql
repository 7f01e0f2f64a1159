-- Few names stand in millions of rows: as dictionaries they are read several times faster where all queues are looked at.
ALTER TABLE queue_metrics_5s
    MODIFY COLUMN organization LowCardinality(String) CODEC(ZSTD(1)),
    MODIFY COLUMN project LowCardinality(String) CODEC(ZSTD(1)),
    MODIFY COLUMN environment LowCardinality(String) CODEC(ZSTD(1)),
    MODIFY COLUMN queue LowCardinality(String) CODEC(ZSTD(1));

ALTER TABLE queue_metrics_1m
    MODIFY COLUMN organization LowCardinality(String) CODEC(ZSTD(1)),
    MODIFY COLUMN project LowCardinality(String) CODEC(ZSTD(1)),
    MODIFY COLUMN environment LowCardinality(String) CODEC(ZSTD(1)),
    MODIFY COLUMN queue LowCardinality(String) CODEC(ZSTD(1));

ALTER TABLE queue_metrics_1h
    MODIFY COLUMN organization LowCardinality(String) CODEC(ZSTD(1)),
    MODIFY COLUMN project LowCardinality(String) CODEC(ZSTD(1)),
    MODIFY COLUMN environment LowCardinality(String) CODEC(ZSTD(1)),
    MODIFY COLUMN queue LowCardinality(String) CODEC(ZSTD(1));

ALTER TABLE environment_metrics_5s
    MODIFY COLUMN organization LowCardinality(String) CODEC(ZSTD(1)),
    MODIFY COLUMN project LowCardinality(String) CODEC(ZSTD(1)),
    MODIFY COLUMN environment LowCardinality(String) CODEC(ZSTD(1));

ALTER TABLE environment_metrics_1m
    MODIFY COLUMN organization LowCardinality(String) CODEC(ZSTD(1)),
    MODIFY COLUMN project LowCardinality(String) CODEC(ZSTD(1)),
    MODIFY COLUMN environment LowCardinality(String) CODEC(ZSTD(1));

ALTER TABLE environment_metrics_1h
    MODIFY COLUMN organization LowCardinality(String) CODEC(ZSTD(1)),
    MODIFY COLUMN project LowCardinality(String) CODEC(ZSTD(1)),
    MODIFY COLUMN environment LowCardinality(String) CODEC(ZSTD(1));
