-- name: columns_of_lives
-- The columns that an insert into the table of lives names.
SELECT name FROM system.columns
WHERE database = currentDatabase() AND table = {table:String} AND default_kind = ''
ORDER BY position

-- name: fill_log
-- Copy lives into the log of one queue, each with a message of 1,000 kB.
INSERT INTO {log:Identifier} ($COLUMNS, queue, number, kept_until, left_out, idempotency_key, headers, payload)
SELECT
    $COLUMNS, 'logged', {start:UInt64} + rowNumberInAllBlocks() + 1, now() + 864000, 0, '', '', carried
FROM (
    SELECT
        * REPLACE (toUInt32(length(carried)) AS payload_bytes),
        concat('{"l": ', toString(range(999)), ', "s": "', repeat('a', 40000), '", "filler": "', repeat('x', 955000), '"}')
            AS carried
    FROM {lives:Identifier}
    WHERE queue = 'q3'
    ORDER BY ended_at DESC
    LIMIT {start:UInt64}, {count:UInt64}
)
