-- Who exists: organizations, their projects, the projects' environments, and the tokens that reach them.
CREATE TABLE weir.organizations (
    organization text PRIMARY KEY,
    created_at_ms bigint NOT NULL
);

CREATE TABLE weir.projects (
    organization text NOT NULL REFERENCES weir.organizations ON DELETE CASCADE,
    project text NOT NULL,
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (organization, project)
);

CREATE TABLE weir.environments (
    organization text NOT NULL,
    project text NOT NULL,
    environment text NOT NULL,
    concurrency integer CHECK (concurrency > 0),
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (organization, project, environment),
    FOREIGN KEY (organization, project) REFERENCES weir.projects ON DELETE CASCADE
);

CREATE TABLE weir.tokens (
    id text PRIMARY KEY,
    organization text NOT NULL REFERENCES weir.organizations ON DELETE CASCADE,
    project text,
    environment text,
    role text NOT NULL CHECK (role IN ('read', 'write', 'admin')),
    name text NOT NULL,
    secret_sha256 bytea NOT NULL CHECK (octet_length(secret_sha256) = 32),
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint,
    revoked_at_ms bigint,
    last_used_at_ms bigint,
    replaces text,
    CHECK (environment IS NULL OR project IS NOT NULL)
);

CREATE INDEX tokens_by_scope ON weir.tokens (organization, project, environment);
