-- What every process must hear of: a spec applied, a queue paused, a flag set.
CREATE TABLE weir.system_events (
    position      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization  text,
    project       text,
    environment   text,
    kind          text NOT NULL,
    payload       jsonb NOT NULL DEFAULT '{}',
    published_by  text NOT NULL,
    created_ms    bigint NOT NULL DEFAULT weir.clock_ms()
);

CREATE INDEX system_events_created ON weir.system_events (created_ms);
