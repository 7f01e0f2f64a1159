-- Secrets of environments, sealed with the key of the installation. While a value is being replaced, the one before it holds too.
CREATE TABLE weir.secrets (
    organization text NOT NULL,
    project text NOT NULL,
    environment text NOT NULL,
    name text NOT NULL,
    key_id text NOT NULL,
    sealed bytea NOT NULL,
    set_at_ms bigint NOT NULL,
    set_by text NOT NULL,
    previous_key_id text,
    previous_sealed bytea,
    previous_until_ms bigint,
    PRIMARY KEY (organization, project, environment, name),
    CHECK ((previous_sealed IS NULL) = (previous_until_ms IS NULL)),
    CHECK ((previous_sealed IS NULL) = (previous_key_id IS NULL))
);

-- Which environments' secrets changed, in the order of the commits, so that a process reads only those again.
CREATE SEQUENCE weir.secrets_version;
CREATE TABLE weir.secret_changes (
    organization text NOT NULL,
    project text NOT NULL,
    environment text NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (organization, project, environment)
);
CREATE INDEX secret_changes_by_version ON weir.secret_changes (version);
