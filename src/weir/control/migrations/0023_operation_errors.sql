-- When an operation last failed, and which failed operations are left to look at.
ALTER TABLE weir.operations ADD COLUMN last_error_ms bigint;

CREATE INDEX operations_failed ON weir.operations (organization, project, environment, finished_ms)
    WHERE status = 'failed';
CREATE INDEX operations_unfinished ON weir.operations (organization, project, environment, created_ms)
    WHERE status IN ('pending', 'processing');
