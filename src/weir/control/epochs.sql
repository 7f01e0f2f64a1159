-- name: read_epoch
-- The life of Redis that this control store belongs to.
SELECT epoch FROM weir.broker_epoch

-- name: begin_epoch
-- Name the first life, unless it has a name.
INSERT INTO weir.broker_epoch (epoch, began_at_ms) VALUES (%(epoch)s, %(now_ms)s)
ON CONFLICT (single) DO NOTHING

-- name: replace_epoch
-- Begin another life: the old Redis is gone for good.
INSERT INTO weir.broker_epoch (epoch, began_at_ms) VALUES (%(epoch)s, %(now_ms)s)
ON CONFLICT (single) DO UPDATE SET epoch = EXCLUDED.epoch, began_at_ms = EXCLUDED.began_at_ms
