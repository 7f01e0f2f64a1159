-- Redrives and purges: what was asked, how far it is, and where it goes on after a kill.
CREATE TABLE weir.dead_letter_tasks (
    id uuid PRIMARY KEY,
    organization text NOT NULL,
    project text NOT NULL,
    environment text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('redrive', 'purge')),
    state text NOT NULL CHECK (
        state IN ('pending', 'running', 'paused', 'cancelled', 'stopped_by_canary', 'completed', 'failed')
    ),
    dry_run boolean NOT NULL,
    filter jsonb NOT NULL,
    rate_per_s double precision CHECK (rate_per_s > 0),
    canary integer NOT NULL DEFAULT 0 CHECK (canary BETWEEN 0 AND 1000),
    canary_tolerance double precision NOT NULL DEFAULT 0 CHECK (canary_tolerance BETWEEN 0 AND 1),
    canary_patience_ms bigint NOT NULL DEFAULT 300000,
    canary_state text NOT NULL DEFAULT 'off' CHECK (canary_state IN ('off', 'sending', 'watching', 'passed')),
    canary_ids uuid[] NOT NULL DEFAULT '{}',
    canary_since_ms bigint,
    patch text,
    -- The lanes are the consumers or, with a fingerprint, the groups to walk; the cursor is inside lane `lane`.
    by_group boolean NOT NULL,
    lanes bigint[] NOT NULL,
    lane integer NOT NULL DEFAULT 0,
    after_enqueued_at_ms bigint NOT NULL DEFAULT -1,
    after_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    high_water bigint NOT NULL,
    expected bigint NOT NULL,
    scanned bigint NOT NULL DEFAULT 0,
    matched bigint NOT NULL DEFAULT 0,
    done bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0,
    samples uuid[] NOT NULL DEFAULT '{}',
    -- Why it waits or ended, and why letters were skipped.
    note text,
    problem text,
    created_by text NOT NULL,
    created_at_ms bigint NOT NULL,
    started_at_ms bigint,
    finished_at_ms bigint,
    next_at_ms bigint NOT NULL
);

CREATE INDEX dead_letter_tasks_live ON weir.dead_letter_tasks (next_at_ms) WHERE state IN ('pending', 'running');
CREATE INDEX dead_letter_tasks_by_scope ON weir.dead_letter_tasks (organization, project, environment, id);

-- How many replayed letters of a redrive died again. The mover writes it and the runner reads it, so that
-- neither ever waits for the other's row.
CREATE TABLE weir.redrive_deaths (
    task_id uuid PRIMARY KEY REFERENCES weir.dead_letter_tasks ON DELETE CASCADE,
    deaths bigint NOT NULL
);
