-- Where a replay comes from: when the first message of its line was enqueued, and its id. Null for a message that is not
-- a replay. Dead letters are walked in this order, so the order of a key survives any number of redrives.
ALTER TABLE weir.dead_letters ADD COLUMN origin_enqueued_at_ms bigint, ADD COLUMN origin_id uuid;

-- Replays that are stored already, as far back as their lines are still there.
WITH RECURSIVE line AS (
    SELECT child.id, parent.id AS ancestor, 1 AS steps
    FROM weir.dead_letters AS child
    JOIN weir.dead_letters AS parent ON parent.id = child.replay_of
    UNION ALL
    SELECT line.id, parent.id, line.steps + 1
    FROM line
    JOIN weir.dead_letters AS child ON child.id = line.ancestor
    JOIN weir.dead_letters AS parent ON parent.id = child.replay_of
), oldest AS (
    SELECT DISTINCT ON (id) id, ancestor FROM line ORDER BY id, steps DESC
)
UPDATE weir.dead_letters AS l
SET origin_enqueued_at_ms = origin.enqueued_at_ms, origin_id = origin.id
FROM oldest JOIN weir.dead_letters AS origin ON origin.id = oldest.ancestor
WHERE l.id = oldest.id;

DROP INDEX weir.dead_letters_by_consumer;
DROP INDEX weir.dead_letters_by_group;
CREATE INDEX dead_letters_by_consumer ON weir.dead_letters
    (consumer_key, coalesce(origin_enqueued_at_ms, enqueued_at_ms), coalesce(origin_id, id))
    WHERE replayed_at_ms IS NULL;
CREATE INDEX dead_letters_by_group ON weir.dead_letters
    (group_key, coalesce(origin_enqueued_at_ms, enqueued_at_ms), coalesce(origin_id, id))
    WHERE replayed_at_ms IS NULL;

-- A redrive that its canary stopped begins again from the front when it is resumed. `retried_to` is the last arrival
-- among its own letters that died again and that it then takes once more; the other two are what it had sent back, and
-- how many of these had died, when it was resumed.
ALTER TABLE weir.dead_letter_tasks
    ADD COLUMN retried_to bigint NOT NULL DEFAULT 0,
    ADD COLUMN done_before bigint NOT NULL DEFAULT 0,
    ADD COLUMN died_before bigint NOT NULL DEFAULT 0;

-- The cursors of unfinished tasks are positions in the former order.
UPDATE weir.dead_letter_tasks
SET lane = 0, after_enqueued_at_ms = -1, after_id = '00000000-0000-0000-0000-000000000000',
    scanned = done, matched = done, skipped = 0, samples = '{}'
WHERE state IN ('pending', 'running', 'paused', 'stopped_by_canary');
