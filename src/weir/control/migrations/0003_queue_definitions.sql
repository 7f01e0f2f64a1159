-- What every queue promises: Redis works by it, and gets it back from here after a loss.
CREATE TABLE weir.queue_definitions (
    organization text NOT NULL,
    project text NOT NULL,
    environment text NOT NULL,
    queue text NOT NULL,
    spec jsonb NOT NULL,
    paused boolean NOT NULL DEFAULT false,
    defined_at_ms bigint NOT NULL,
    PRIMARY KEY (organization, project, environment, queue),
    FOREIGN KEY (organization, project, environment) REFERENCES weir.environments ON DELETE CASCADE
);
