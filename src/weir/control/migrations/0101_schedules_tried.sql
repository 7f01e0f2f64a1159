-- Finds the schedules that were tried before among any number that are due.
CREATE INDEX schedules_tried ON weir.schedules (due_ms) WHERE tries > 0;
