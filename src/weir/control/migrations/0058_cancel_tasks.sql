-- Bulk actions may cancel messages that wait or are leased: which ones, and how far the walk over a state is.
ALTER TABLE weir.dead_letter_tasks DROP CONSTRAINT dead_letter_tasks_kind_check;
ALTER TABLE weir.dead_letter_tasks ADD CONSTRAINT dead_letter_tasks_kind_check
    CHECK (kind IN ('redrive', 'purge', 'cancel'));
-- Null for redrives and purges. With it, `lanes` holds positions in the order of states that a cancellation walks.
ALTER TABLE weir.dead_letter_tasks ADD COLUMN selection jsonb;
-- The broker's cursor within the state that is walked now; null at its beginning.
ALTER TABLE weir.dead_letter_tasks ADD COLUMN cursor text;
