-- What is pushed when: schedules of specs and of the API, and what became of their last ticks.
CREATE TABLE weir.schedules (
    id uuid PRIMARY KEY,
    organization text NOT NULL,
    project text NOT NULL,
    environment text NOT NULL,
    name text NOT NULL CHECK (name <> ''),
    queue text NOT NULL CHECK (queue <> ''),
    cron text,
    every_ms bigint CHECK (every_ms > 0),
    timezone text NOT NULL,
    payload json NOT NULL,
    missed text NOT NULL CHECK (missed IN ('skip', 'last', 'all')),
    overlap text NOT NULL CHECK (overlap IN ('allow', 'skip')),
    origin text NOT NULL CHECK (origin IN ('api', 'spec')),
    paused boolean NOT NULL DEFAULT false,
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    -- Every tick up to here is decided. A scheduler moves it in the transaction that records the ticks.
    last_tick_ms bigint NOT NULL,
    next_tick_ms bigint,
    -- A run that somebody asked for.
    asked_ms bigint,
    -- A tick that its queue did not take: it is tried again at `retry_at_ms`.
    refused_ms bigint,
    retry_at_ms bigint NOT NULL DEFAULT 0,
    refusals int NOT NULL DEFAULT 0,
    problem text,
    -- When a scheduler has something to do; NULL while it has not.
    due_ms bigint,
    CHECK ((cron IS NULL) <> (every_ms IS NULL)),
    UNIQUE (organization, project, environment, name)
) WITH (fillfactor = 70);

CREATE INDEX schedules_due ON weir.schedules (due_ms) WHERE due_ms IS NOT NULL;
CREATE INDEX schedules_by_queue ON weir.schedules (organization, project, environment, queue);

-- The last runs of each schedule. A row of skipped ticks may stand for many; its tick is the last of them.
CREATE TABLE weir.schedule_runs (
    schedule_id uuid NOT NULL REFERENCES weir.schedules ON DELETE CASCADE,
    tick_ms bigint NOT NULL,
    asked boolean NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('pushed', 'skipped', 'failed')),
    ticks int NOT NULL CHECK (ticks > 0),
    reason text,
    queue text NOT NULL,
    message_id uuid,
    -- Of a push that was queued because the broker was busy or away.
    operation_id uuid,
    at_ms bigint NOT NULL,
    ended text CHECK (ended IN ('acked', 'dead', 'failed')),
    PRIMARY KEY (schedule_id, tick_ms)
);

CREATE INDEX schedule_runs_open ON weir.schedule_runs (schedule_id, tick_ms DESC)
    WHERE outcome = 'pushed' AND ended IS NULL;
