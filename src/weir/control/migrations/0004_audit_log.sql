-- Who changed what: one row for every change that a person or a token asked for.
CREATE TABLE weir.audit_log (
    id uuid PRIMARY KEY,
    organization text NOT NULL,
    project text,
    environment text,
    actor text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    details jsonb NOT NULL DEFAULT '{}',
    at_ms bigint NOT NULL
);

CREATE INDEX audit_log_by_scope ON weir.audit_log (organization, project, environment, id DESC);
