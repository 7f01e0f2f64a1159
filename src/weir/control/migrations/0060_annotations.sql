-- What people note on the charts, such as a deploy, and the indexes of everything else that is marked there.
CREATE TABLE weir.annotations (
    id uuid PRIMARY KEY,
    organization text NOT NULL,
    project text NOT NULL,
    environment text NOT NULL,
    text text NOT NULL CHECK (text <> ''),
    at_ms bigint NOT NULL,
    created_by text NOT NULL,
    created_at_ms bigint NOT NULL
);

CREATE INDEX annotations_by_time ON weir.annotations (organization, project, environment, at_ms DESC);
CREATE INDEX alerts_by_time ON weir.alerts (organization, project, environment, fired_at_ms DESC);
CREATE INDEX audit_log_pauses ON weir.audit_log (organization, project, environment, target, at_ms)
    WHERE action IN ('queue.pause', 'queue.resume');
