-- What died. Channels fan out to consumers, every queue has one consumer, every dead letter one consumer and group.
CREATE TABLE weir.channels (
    organization text NOT NULL,
    project text NOT NULL,
    environment text NOT NULL,
    channel_id text NOT NULL CHECK (channel_id <> ''),
    name text NOT NULL,
    token_id text UNIQUE,
    token_sha256 bytea CHECK (octet_length(token_sha256) = 32),
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (organization, project, environment, channel_id)
);

-- A queue that no channel feeds has an implicit consumer: channel '' and the queue's own name.
CREATE TABLE weir.consumers (
    consumer_key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization text NOT NULL,
    project text NOT NULL,
    environment text NOT NULL,
    queue text NOT NULL,
    channel_id text NOT NULL DEFAULT '',
    channel_name text NOT NULL DEFAULT '',
    consumer_id text NOT NULL,
    consumer_name text NOT NULL,
    token_id text UNIQUE,
    token_sha256 bytea CHECK (octet_length(token_sha256) = 32),
    created_at_ms bigint NOT NULL,
    UNIQUE (organization, project, environment, queue),
    UNIQUE (organization, project, environment, channel_id, consumer_id)
);

-- One row a consumer, changed in the transaction of every death, replay and purge; half-empty pages keep updates HOT.
CREATE TABLE weir.dlq_summary (
    consumer_key bigint PRIMARY KEY REFERENCES weir.consumers ON DELETE CASCADE,
    organization text NOT NULL,
    project text NOT NULL,
    environment text NOT NULL,
    queue text NOT NULL,
    channel_id text NOT NULL,
    channel_name text NOT NULL,
    consumer_id text NOT NULL,
    consumer_name text NOT NULL,
    dead_count bigint NOT NULL DEFAULT 0,
    last_checked_at_ms bigint NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX dlq_summary_by_scope ON weir.dlq_summary (organization, project, environment, queue);

-- Errors that look alike, by consumer. `heat` halves every hour without deaths: it is the rate.
CREATE TABLE weir.dead_letter_groups (
    group_key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer_key bigint NOT NULL REFERENCES weir.consumers ON DELETE CASCADE,
    fingerprint text NOT NULL,
    template text NOT NULL,
    sample_id uuid NOT NULL,
    sample_error text NOT NULL,
    first_seen_ms bigint NOT NULL,
    last_seen_ms bigint NOT NULL,
    dead_count bigint NOT NULL DEFAULT 0,
    total_count bigint NOT NULL DEFAULT 0,
    heat double precision NOT NULL DEFAULT 0,
    UNIQUE (consumer_key, fingerprint)
) WITH (fillfactor = 50);

-- The letters. Their tenant is their consumer's: three names fewer on each of tens of millions of rows.
-- No foreign keys: consumers and groups are never deleted while the mover runs, and a check a row would halve it.
-- Replayed letters stay as lineage and leave the partial indexes, so a replay touches one index, a read none of them.
CREATE TABLE weir.dead_letters (
    id uuid PRIMARY KEY,
    seq bigint GENERATED ALWAYS AS IDENTITY,
    consumer_key bigint NOT NULL,
    group_key bigint NOT NULL,
    enqueued_at_ms bigint NOT NULL,
    died_at_ms bigint NOT NULL,
    attempts integer NOT NULL,
    max_attempts integer NOT NULL,
    reason text NOT NULL,
    error text NOT NULL,
    payload bytea NOT NULL,
    envelope json NOT NULL,
    replay_of uuid,
    replay_id uuid,
    replayed_at_ms bigint,
    replay_task uuid,
    replay_result text
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02
);

CREATE INDEX dead_letters_by_consumer ON weir.dead_letters (consumer_key, enqueued_at_ms, id)
    WHERE replayed_at_ms IS NULL;
CREATE INDEX dead_letters_by_group ON weir.dead_letters (group_key, enqueued_at_ms, id)
    WHERE replayed_at_ms IS NULL;
-- Arrival order is nearly physical order: a few pages are enough to cut the table into ranges.
CREATE INDEX dead_letters_by_arrival ON weir.dead_letters USING brin (seq) WITH (autosummarize = on);
CREATE INDEX dead_letters_replayed ON weir.dead_letters (replayed_at_ms) WHERE replayed_at_ms IS NOT NULL;

-- What each shard's mover carried last: after a crash it drops these from the outbox instead of storing them again.
CREATE TABLE weir.mover_checkpoints (
    shard integer PRIMARY KEY,
    batch uuid NOT NULL,
    message_ids uuid[] NOT NULL,
    moved_at_ms bigint NOT NULL
);

-- One row for each audit of the summary; drift is what it found, and repaired.
CREATE TABLE weir.dlq_audits (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    started_at_ms bigint NOT NULL,
    finished_at_ms bigint NOT NULL,
    consumers integer NOT NULL,
    letters bigint NOT NULL,
    drift bigint NOT NULL
);
