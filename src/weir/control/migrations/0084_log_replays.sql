-- Bulk actions may send messages of a log into a queue. Their selection is {"log": what is meant, "into": the queue}.
ALTER TABLE weir.dead_letter_tasks DROP CONSTRAINT dead_letter_tasks_kind_check;
ALTER TABLE weir.dead_letter_tasks ADD CONSTRAINT dead_letter_tasks_kind_check
    CHECK (kind IN ('redrive', 'purge', 'cancel', 'replay'));
ALTER TABLE weir.message_children DROP CONSTRAINT message_children_kind_check;
ALTER TABLE weir.message_children ADD CONSTRAINT message_children_kind_check
    CHECK (kind IN ('chained', 'copied', 'replayed'));
