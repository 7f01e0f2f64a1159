-- name: store_time
-- What time it is in PostgreSQL.
SELECT weir.clock_ms() AS now_ms;
