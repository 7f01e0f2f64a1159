-- name: server_state
-- The version of the server, the size of the database and its durability.
SELECT
    current_setting('server_version') AS version,
    current_setting('server_version_num')::int AS version_number,
    pg_database_size(current_database()) AS size_bytes,
    current_setting('fsync')::boolean AS fsync,
    pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean AS read_only
