-- A redrive claims letters in a statement of its own before it sends them, so that no transaction is open while it sends.
-- Until the deadline nobody else redrives or deletes them; afterwards a claim is as if it had never been.
ALTER TABLE weir.dead_letters ADD COLUMN claim uuid, ADD COLUMN claimed_until_ms bigint;

-- A message is looked up by the id that it was redriven under.
CREATE INDEX dead_letters_by_replay ON weir.dead_letters (replay_id) WHERE replay_id IS NOT NULL;

-- The runner that claims a bulk action does its next batch. `tries` counts claims since the last batch that was saved,
-- and is written before the batch begins, so that a batch that ends its process is counted too.
ALTER TABLE weir.dead_letter_tasks
    ADD COLUMN claim uuid, ADD COLUMN claimed_until_ms bigint, ADD COLUMN tries integer NOT NULL DEFAULT 0;

-- A canary that stopped its bulk action has failed.
ALTER TABLE weir.dead_letter_tasks DROP CONSTRAINT dead_letter_tasks_canary_state_check;
ALTER TABLE weir.dead_letter_tasks ADD CONSTRAINT dead_letter_tasks_canary_state_check
    CHECK (canary_state IN ('off', 'sending', 'watching', 'passed', 'failed'));
UPDATE weir.dead_letter_tasks SET canary_state = 'failed' WHERE state = 'stopped_by_canary';

-- One process at a time copies the deaths of a consumer: the one with the claim, until its deadline.
ALTER TABLE weir.dead_letter_copies ADD COLUMN claim uuid, ADD COLUMN claimed_until_ms bigint;
