-- How many attempts ended and failed, and how long handlers ran: sums of each worker, by queue and five seconds. A verdict
-- compares now with the usual, for which single attempts would be too many to read.
CREATE TABLE weir.handler_times (
    organization text    NOT NULL,
    project      text    NOT NULL,
    environment  text    NOT NULL,
    queue        text    NOT NULL,
    bucket_ms    bigint  NOT NULL,
    worker       text    NOT NULL,
    attempts     integer NOT NULL,
    failed       integer NOT NULL,
    handler_ms   bigint  NOT NULL,
    PRIMARY KEY (organization, project, environment, queue, bucket_ms, worker)
);

CREATE INDEX handler_times_by_time ON weir.handler_times USING brin (bucket_ms);

-- The newest failures of a queue. Partial, so that an attempt that went well costs nothing.
CREATE INDEX message_attempts_failed ON weir.message_attempts (organization, project, environment, queue, finished_at_ms)
WHERE ending IN ('failed', 'dead');
