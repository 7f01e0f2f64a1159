-- Which messages came from which: only messages that have a parent have a row. Redrives are in weir.dead_letters.
CREATE TABLE weir.message_children (
    organization text   NOT NULL,
    project      text   NOT NULL,
    environment  text   NOT NULL,
    parent_id    uuid   NOT NULL,
    child_id     uuid   NOT NULL,
    -- The queue of the child.
    queue        text   NOT NULL,
    kind         text   NOT NULL CHECK (kind IN ('chained', 'copied')),
    at_ms        bigint NOT NULL,
    PRIMARY KEY (parent_id, child_id, organization, project, environment)
);

CREATE INDEX message_children_by_child ON weir.message_children (child_id);
CREATE INDEX message_children_by_time ON weir.message_children USING brin (at_ms);

-- The trace that the message of an attempt was made in.
ALTER TABLE weir.message_attempts ADD COLUMN trace_id text;
