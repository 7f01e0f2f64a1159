-- name: read_epoch
-- The epoch of the Redis that this control store belongs to.
SELECT epoch FROM weir.broker_epoch

-- name: begin_epoch
-- Store the first epoch, unless there is one.
INSERT INTO weir.broker_epoch (epoch, began_at_ms) VALUES (%(epoch)s, %(now_ms)s)
ON CONFLICT (single) DO NOTHING

-- name: replace_epoch
-- Store another epoch: the old Redis is lost, and the new one may have another number of shards.
INSERT INTO weir.broker_epoch (epoch, began_at_ms) VALUES (%(epoch)s, %(now_ms)s)
ON CONFLICT (single) DO UPDATE SET epoch = EXCLUDED.epoch, began_at_ms = EXCLUDED.began_at_ms, shards = NULL

-- name: agree_on_shards
-- Store the number of shards unless there is one; returns the number that holds.
UPDATE weir.broker_epoch SET shards = coalesce(shards, %(shards)s::int) RETURNING shards
