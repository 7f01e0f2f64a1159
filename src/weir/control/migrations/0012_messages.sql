-- What workers did with messages: one row for each attempt, kept for a while for the timeline.
CREATE TABLE weir.message_attempts (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization   text    NOT NULL,
    project        text    NOT NULL,
    environment    text    NOT NULL,
    queue          text    NOT NULL,
    message_id     text    NOT NULL,
    attempt        integer NOT NULL,
    worker         text    NOT NULL,
    enqueued_at_ms bigint  NOT NULL,
    started_at_ms  bigint  NOT NULL,
    finished_at_ms bigint  NOT NULL,
    ending         text    NOT NULL,
    error          text    NOT NULL DEFAULT '',
    hook           text,
    received_at_ms bigint
);

CREATE INDEX message_attempts_by_message ON weir.message_attempts (message_id);
CREATE INDEX message_attempts_by_time ON weir.message_attempts USING brin (finished_at_ms);

-- Results by idempotency key: of messages that were processed, and of webhooks that run at once.
CREATE TABLE weir.idempotency_keys (
    organization text   NOT NULL,
    project      text   NOT NULL,
    environment  text   NOT NULL,
    kind         text   NOT NULL CHECK (kind IN ('queue', 'hook')),
    name         text   NOT NULL,
    key          text   NOT NULL,
    digest       bytea,
    in_flight    boolean NOT NULL DEFAULT false,
    message_id   text   NOT NULL,
    result       json,
    at_ms        bigint NOT NULL,
    PRIMARY KEY (organization, project, environment, kind, name, key)
);

CREATE INDEX idempotency_keys_by_time ON weir.idempotency_keys (at_ms);
CREATE INDEX idempotency_keys_by_message ON weir.idempotency_keys (message_id);
