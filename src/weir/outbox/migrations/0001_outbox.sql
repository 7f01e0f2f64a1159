-- The outbox in a user's database: a message that is written in a transaction exists if and only if that commits.
CREATE SCHEMA IF NOT EXISTS weir_outbox;

CREATE SEQUENCE IF NOT EXISTS weir_outbox.positions;

CREATE TABLE IF NOT EXISTS weir_outbox.messages (
    id uuid PRIMARY KEY,
    -- The transaction that wrote it: its trigger finds the rows by it.
    transaction_id xid8 NOT NULL DEFAULT pg_current_xact_id(),
    -- NULL until the transaction commits. Of one queue and key it follows the order of the commits.
    position bigint,
    queue text NOT NULL CHECK (queue <> ''),
    key text,
    payload bytea NOT NULL,
    is_json boolean NOT NULL,
    headers text,
    priority smallint,
    delay_ms bigint,
    idempotency_key text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Set if the message can never be pushed; it stays here with the reason.
    failed_at timestamptz,
    problem text,
    -- Messages of one stripe are relayed in the order of their positions; those of one key share a stripe.
    stripe smallint GENERATED ALWAYS AS ((hashtext(coalesce(queue || chr(31) || key, id::text)) & 255)::smallint) STORED
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);

CREATE INDEX IF NOT EXISTS messages_unplaced ON weir_outbox.messages (transaction_id) WHERE position IS NULL;
CREATE INDEX IF NOT EXISTS messages_in_order ON weir_outbox.messages ((stripe & 7), position)
    WHERE position IS NOT NULL AND failed_at IS NULL;

-- Runs when a transaction commits, once for all of its messages. From here to the end of the commit it holds a lock
-- of each of its stripes, so that a transaction that commits later also gets later positions. It takes the locks in
-- one order, so that two commits never wait for each other. There are 256 locks however many keys there are.
CREATE OR REPLACE FUNCTION weir_outbox.take_positions() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM weir_outbox.messages WHERE id = NEW.id AND position IS NULL) THEN
        RETURN NULL;
    END IF;
    PERFORM pg_advisory_xact_lock(1466526066, l.stripe) FROM (
        SELECT DISTINCT stripe::int AS stripe FROM weir_outbox.messages
        WHERE transaction_id = pg_current_xact_id() AND position IS NULL AND key IS NOT NULL
        ORDER BY stripe
    ) AS l;
    UPDATE weir_outbox.messages AS m SET position = p.position
    FROM (
        SELECT o.id, nextval('weir_outbox.positions') AS position FROM (
            SELECT id FROM weir_outbox.messages
            WHERE transaction_id = pg_current_xact_id() AND position IS NULL
            ORDER BY id
        ) AS o
    ) AS p
    WHERE m.id = p.id;
    RETURN NULL;
END
$$;

DROP TRIGGER IF EXISTS take_positions ON weir_outbox.messages;
CREATE CONSTRAINT TRIGGER take_positions AFTER INSERT ON weir_outbox.messages
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION weir_outbox.take_positions();
