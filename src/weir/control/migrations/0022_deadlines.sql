-- Writes that come too late: the last statement before a commit asks whether anybody still waits for it.
CREATE FUNCTION weir.require_before(deadline_ms bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF weir.clock_ms() > deadline_ms THEN
        RAISE EXCEPTION 'the deadline of this write has passed; nothing was changed'
            USING ERRCODE = 'query_canceled';
    END IF;
END
$$;

COMMENT ON FUNCTION weir.require_before IS
    'Fails once this server''s clock is past the deadline, in ms. Its caller derives the deadline from this clock.';
