-- What a scheduler works on, written down before it begins: a schedule that ends its process is found by it.
ALTER TABLE weir.schedules ADD COLUMN tries integer NOT NULL DEFAULT 0;

CREATE TABLE weir.schedule_rounds (
    id uuid PRIMARY KEY,
    schedules uuid[] NOT NULL,
    begun_at_ms bigint NOT NULL
);
