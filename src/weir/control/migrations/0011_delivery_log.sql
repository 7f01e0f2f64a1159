-- What was sent out, when, and what came back: one row for each outbound attempt.
CREATE TABLE weir.delivery_log (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization  text    NOT NULL,
    project       text    NOT NULL,
    environment   text    NOT NULL,
    queue         text    NOT NULL,
    message_id    text    NOT NULL,
    attempt       integer NOT NULL,
    url           text    NOT NULL,
    sent_at_ms    bigint  NOT NULL,
    duration_ms   integer NOT NULL,
    verdict       text    NOT NULL,
    status        integer,
    error         text,
    excerpt       text    NOT NULL DEFAULT ''
);

CREATE INDEX delivery_log_by_message ON weir.delivery_log (message_id);
CREATE INDEX delivery_log_by_queue ON weir.delivery_log (organization, project, environment, queue, id);
CREATE INDEX delivery_log_by_time ON weir.delivery_log (sent_at_ms);

-- Endpoints that answered 410 and get nothing more until someone enables them again.
CREATE TABLE weir.disabled_endpoints (
    organization   text   NOT NULL,
    project        text   NOT NULL,
    environment    text   NOT NULL,
    url            text   NOT NULL,
    disabled_at_ms bigint NOT NULL,
    reason         text   NOT NULL,
    PRIMARY KEY (organization, project, environment, url)
);
