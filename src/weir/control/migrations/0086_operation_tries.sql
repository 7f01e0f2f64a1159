-- How often an operation was claimed without a word about its end, so that one which ends its process is found.
ALTER TABLE weir.operations ADD COLUMN tries integer NOT NULL DEFAULT 0;

COMMENT ON COLUMN weir.operations.tries IS
    'Claims since a processor last said what became of it. Counted before it is touched, reset when it is settled.';
