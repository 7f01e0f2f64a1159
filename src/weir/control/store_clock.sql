-- name: store_time
-- PostgreSQL's time.
SELECT weir.clock_ms() AS now_ms;
