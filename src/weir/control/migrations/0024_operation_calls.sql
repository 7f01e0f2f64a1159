-- Which call an operation will ask about, so that the broker may forget the others.
ALTER TABLE weir.operations ADD COLUMN call_lane text;

COMMENT ON COLUMN weir.operations.call_lane IS
    'Lane of the direct call of unknown outcome that the operation repeats. The broker remembers it until then.';

-- A payload is four bytes with the length of its head, the head as JSON, and the messages' bytes.
DO $$
DECLARE
    operation record;
    size integer;
BEGIN
    FOR operation IN
        SELECT id, payload FROM weir.operations
        WHERE status IN ('pending', 'processing', 'failed') AND type = 'PUSH' AND length(payload) > 4
          AND position('"call":'::bytea IN payload) > 0
    LOOP
        BEGIN
            size := (get_byte(operation.payload, 0) << 24) + (get_byte(operation.payload, 1) << 16)
                + (get_byte(operation.payload, 2) << 8) + get_byte(operation.payload, 3);
            UPDATE weir.operations
            SET call_lane = convert_from(substring(operation.payload FROM 5 FOR size), 'UTF8')::jsonb #>> '{call,0}'
            WHERE id = operation.id;
        EXCEPTION WHEN data_exception THEN
            -- What cannot be read cannot be executed either.
            NULL;
        END;
    END LOOP;
END
$$;

CREATE INDEX operations_call ON weir.operations (call_lane) WHERE call_lane IS NOT NULL;
