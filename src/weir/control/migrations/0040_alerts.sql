-- When to speak: rules, where to say it, what was said, and who evaluates.
CREATE TABLE weir.alert_rules (
    id uuid PRIMARY KEY,
    organization text NOT NULL,
    project text NOT NULL,
    environment text NOT NULL,
    name text NOT NULL CHECK (name <> ''),
    metric text NOT NULL,
    operator text NOT NULL,
    threshold double precision NOT NULL CHECK (threshold >= 0 AND threshold < 'Infinity'),
    clear_threshold double precision CHECK (clear_threshold >= 0 AND clear_threshold < 'Infinity'),
    queue text,
    window_ms bigint NOT NULL CHECK (window_ms > 0),
    cooldown_ms bigint NOT NULL CHECK (cooldown_ms >= 0),
    auto_resolve boolean NOT NULL,
    channels text[] NOT NULL,
    enabled boolean NOT NULL,
    origin text NOT NULL CHECK (origin IN ('api', 'spec')),
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    UNIQUE (organization, project, environment, name)
);

CREATE TABLE weir.alert_channels (
    organization text NOT NULL,
    project text NOT NULL,
    environment text NOT NULL,
    name text NOT NULL CHECK (name <> ''),
    kind text NOT NULL,
    config jsonb NOT NULL,
    disabled_reason text,
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (organization, project, environment, name)
);

-- What the evaluator remembers of a rule about a queue ('' for rules about no queue); gone when nothing is.
CREATE TABLE weir.alert_memories (
    rule_id uuid NOT NULL REFERENCES weir.alert_rules ON DELETE CASCADE,
    queue text NOT NULL,
    status text NOT NULL,
    since_ms bigint NOT NULL,
    open boolean NOT NULL,
    clear_since_ms bigint,
    last_fired_ms bigint,
    evaluated_ms bigint NOT NULL,
    alert_id uuid,
    PRIMARY KEY (rule_id, queue)
) WITH (fillfactor = 70);

-- One row for each time that a rule fired; it outlives its rule.
CREATE TABLE weir.alerts (
    id uuid PRIMARY KEY,
    rule_id uuid NOT NULL,
    organization text NOT NULL,
    project text NOT NULL,
    environment text NOT NULL,
    rule jsonb NOT NULL,
    queue text NOT NULL,
    state text NOT NULL CHECK (state IN ('firing', 'resolved')),
    fired_at_ms bigint NOT NULL,
    resolved_at_ms bigint,
    unknown_since_ms bigint,
    value double precision,
    peak double precision,
    cause text NOT NULL,
    verdict jsonb NOT NULL,
    notified boolean NOT NULL DEFAULT false,
    acknowledged_at_ms bigint,
    acknowledged_by text
);

CREATE INDEX alerts_by_scope ON weir.alerts (organization, project, environment, id DESC);
CREATE UNIQUE INDEX alerts_open ON weir.alerts (rule_id, queue) WHERE state = 'firing';

CREATE TABLE weir.alert_timeline (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    alert_id uuid NOT NULL REFERENCES weir.alerts ON DELETE CASCADE,
    at_ms bigint NOT NULL,
    event text NOT NULL,
    details jsonb NOT NULL
);

CREATE INDEX alert_timeline_by_alert ON weir.alert_timeline (alert_id, seq);

CREATE TABLE weir.alert_silences (
    id uuid PRIMARY KEY,
    organization text NOT NULL,
    project text NOT NULL,
    environment text NOT NULL,
    rule_name text,
    queue text,
    starts_at_ms bigint NOT NULL,
    ends_at_ms bigint NOT NULL CHECK (ends_at_ms > starts_at_ms),
    comment text NOT NULL,
    created_by text NOT NULL
);

CREATE INDEX alert_silences_by_scope ON weir.alert_silences (organization, project, environment, ends_at_ms);

-- What is to be said to whom. Written in the transaction that changed the alert, then carried by a queue.
CREATE TABLE weir.alert_notifications (
    id uuid PRIMARY KEY,
    organization text NOT NULL,
    project text NOT NULL,
    environment text NOT NULL,
    channel text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('firing', 'resolved', 'test')),
    document jsonb NOT NULL,
    state text NOT NULL CHECK (state IN ('waiting', 'queued', 'delivered', 'failed')),
    created_at_ms bigint NOT NULL,
    settled_at_ms bigint,
    last_error text
);

CREATE INDEX alert_notifications_waiting ON weir.alert_notifications (id) WHERE state = 'waiting';
CREATE INDEX alert_notifications_by_scope ON weir.alert_notifications (organization, project, environment, id DESC);

-- Every attempt to say it.
CREATE TABLE weir.alert_deliveries (
    notification_id uuid NOT NULL REFERENCES weir.alert_notifications ON DELETE CASCADE,
    attempt integer NOT NULL,
    at_ms bigint NOT NULL,
    duration_ms bigint NOT NULL,
    verdict text NOT NULL,
    status integer,
    error text,
    excerpt text NOT NULL,
    PRIMARY KEY (notification_id, attempt, at_ms)
);

-- One holder at a time; `token` grows with every change of hands, and a write under an old one is refused.
CREATE TABLE weir.alert_leases (
    name text PRIMARY KEY,
    holder text NOT NULL,
    token bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    evaluated_at_ms bigint,
    took_ms bigint
);
