-- `max_age` is kept as it was written. What stands there as the default may never have been written, and must not
-- delete dead letters.
UPDATE weir.queue_definitions SET spec = jsonb_set(spec, '{retention,max_age_ms}', 'null')
WHERE spec #>> '{retention,max_age_ms}' = '1209600000';
UPDATE weir.applied_specs
SET spec = regexp_replace(spec::text, '"max_age_ms":\s*1209600000\M(,\s*)?', '', 'g')::json
WHERE spec::text ~ '"max_age_ms":\s*1209600000\M';

-- The dead letters of a consumer in the order of their deaths: copies go out, and letters grow too old, from the front.
CREATE INDEX dead_letters_by_death ON weir.dead_letters (consumer_key, seq) WHERE replayed_at_ms IS NULL;

-- How far the deaths of a consumer were copied into its dead letter queue: up to which arrival. `popped` remembers that
-- this dead letter queue was once asked for messages, should Redis lose it.
CREATE TABLE weir.dead_letter_copies (
    consumer_key bigint PRIMARY KEY REFERENCES weir.consumers ON DELETE CASCADE,
    dead_letter_queue text NOT NULL,
    popped boolean NOT NULL DEFAULT false,
    copied_to bigint NOT NULL DEFAULT 0
);
