-- name: try_lock_shard
-- Be the only mover of a shard until the transaction ends.
SELECT pg_try_advisory_xact_lock(7764, %(shard)s) AS locked;

-- name: last_batch
-- What a shard's last mover stored, unless the caller knows that it was dropped.
SELECT batch, message_ids FROM weir.mover_checkpoints
WHERE shard = %(shard)s AND batch IS DISTINCT FROM %(known)s::uuid;

-- name: save_batch
-- Remember what was stored, in the transaction that stores it.
INSERT INTO weir.mover_checkpoints (shard, batch, message_ids, moved_at_ms)
VALUES (%(shard)s, %(batch)s, %(ids)s::uuid[], %(now_ms)s)
ON CONFLICT (shard) DO UPDATE
SET batch = excluded.batch, message_ids = excluded.message_ids, moved_at_ms = excluded.moved_at_ms;

-- name: count_redeaths
-- Count letters of redrives that died again; a task that does not exist is nobody's.
INSERT INTO weir.redrive_deaths (task_id, deaths)
SELECT d.task_id, d.deaths
FROM unnest(%(tasks)s::uuid[], %(deaths)s::bigint[]) AS d (task_id, deaths)
JOIN weir.dead_letter_tasks AS t ON t.id = d.task_id
ORDER BY d.task_id
ON CONFLICT (task_id) DO UPDATE SET deaths = weir.redrive_deaths.deaths + excluded.deaths;
