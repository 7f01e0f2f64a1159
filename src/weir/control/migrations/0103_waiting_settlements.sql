-- Finds since when the oldest queued settlement of a shard waits: no lease that it may name lapses meanwhile.
CREATE INDEX operations_settlements ON weir.operations (shard, created_ms)
    WHERE type IN ('ACK_BATCH', 'ACK_SINGLE') AND status IN ('pending', 'processing') AND retry_count = 0;
