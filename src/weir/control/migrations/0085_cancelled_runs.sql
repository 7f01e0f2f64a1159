-- The message of a run may have been cancelled.
ALTER TABLE weir.schedule_runs DROP CONSTRAINT schedule_runs_ended_check;
ALTER TABLE weir.schedule_runs ADD CONSTRAINT schedule_runs_ended_check
    CHECK (ended IN ('acked', 'dead', 'cancelled', 'failed'));
