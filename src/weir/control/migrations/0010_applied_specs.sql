-- Every spec that was applied, the newest revision of an environment being the one that holds.
CREATE TABLE weir.applied_specs (
    serial        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization  text    NOT NULL,
    project       text    NOT NULL,
    environment   text    NOT NULL,
    revision      integer NOT NULL,
    spec          json    NOT NULL,
    source        text    NOT NULL,
    file          text    NOT NULL,
    actor         text    NOT NULL,
    applied_at_ms bigint  NOT NULL,
    UNIQUE (organization, project, environment, revision),
    FOREIGN KEY (organization, project, environment) REFERENCES weir.environments ON DELETE CASCADE
);

-- Who answers at the short address of a webhook: the environment that asked first.
CREATE TABLE weir.hook_names (
    name         text PRIMARY KEY,
    organization text NOT NULL,
    project      text NOT NULL,
    environment  text NOT NULL,
    FOREIGN KEY (organization, project, environment) REFERENCES weir.environments ON DELETE CASCADE
);
