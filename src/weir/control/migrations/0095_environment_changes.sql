-- What is new about each environment, and what the broker is still to be told about its queues.

-- `revision` counts the changes of an environment's definitions. `changed_by` is the transaction of the last one: a reader
-- asks for those that its last snapshot could not see, so no clock and no order of commits makes it miss one.
ALTER TABLE weir.environments
    ADD COLUMN revision bigint NOT NULL DEFAULT 0,
    ADD COLUMN changed_by bigint NOT NULL DEFAULT 0,
    ADD COLUMN limited_by_spec boolean NOT NULL DEFAULT false;
CREATE INDEX environments_by_change ON weir.environments (changed_by);

-- The revision of the environment at which the definition of a queue last changed.
ALTER TABLE weir.queue_definitions ADD COLUMN revision bigint NOT NULL DEFAULT 1;

UPDATE weir.environments AS e SET limited_by_spec = true
FROM (
    SELECT DISTINCT ON (organization, project, environment) organization, project, environment, spec
    FROM weir.applied_specs ORDER BY organization, project, environment, revision DESC
) AS s
WHERE (e.organization, e.project, e.environment) = (s.organization, s.project, s.environment)
  AND s.spec ->> 'concurrency' IS NOT NULL AND e.concurrency IS NOT NULL;

-- The queues of which the broker is told what PostgreSQL says, in the process that changed them or in another one. A row with
-- the empty name stands for the limit of the environment.
CREATE TABLE weir.untold_queues (
    organization text NOT NULL,
    project      text NOT NULL,
    environment  text NOT NULL,
    queue        text NOT NULL,
    ready_at     timestamptz NOT NULL DEFAULT now(),
    tries        integer NOT NULL DEFAULT 0,
    pausing      boolean NOT NULL DEFAULT false,
    PRIMARY KEY (organization, project, environment, queue),
    FOREIGN KEY (organization, project, environment) REFERENCES weir.environments ON DELETE CASCADE
);
CREATE INDEX untold_queues_ready ON weir.untold_queues (ready_at);
