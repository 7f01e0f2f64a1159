-- Notifications wait in this table until they are sent, in order per channel and rule; no queue carries them.
ALTER TABLE weir.alert_notifications
    -- The order in which they were stored, whatever the clocks of the processes said.
    ADD COLUMN seq bigint GENERATED ALWAYS AS IDENTITY,
    -- The rule, or the id of a test. Notifications of one channel about one subject are sent one after the other.
    ADD COLUMN subject uuid,
    -- The alerts that it tells of, the worst first; the document lists only the first of them.
    ADD COLUMN alert_ids uuid[] NOT NULL DEFAULT '{}',
    -- Alerts that were over before they could be sent. The channel is not told that they are over either.
    ADD COLUMN withheld uuid[] NOT NULL DEFAULT '{}',
    -- Counted before each try, which also moves `next_at_ms` behind the end of that try.
    ADD COLUMN tries integer NOT NULL DEFAULT 0,
    ADD COLUMN next_at_ms bigint NOT NULL DEFAULT 0;

UPDATE weir.alert_notifications SET subject = id;
ALTER TABLE weir.alert_notifications ALTER COLUMN subject SET NOT NULL;

ALTER TABLE weir.alert_notifications DROP CONSTRAINT alert_notifications_state_check;
UPDATE weir.alert_notifications SET state = 'waiting' WHERE state = 'queued';
ALTER TABLE weir.alert_notifications ADD CONSTRAINT alert_notifications_state_check
    CHECK (state IN ('waiting', 'delivered', 'failed', 'skipped'));

DROP INDEX weir.alert_notifications_waiting;
CREATE INDEX alert_notifications_waiting
    ON weir.alert_notifications (organization, project, environment, channel, subject, seq) WHERE state = 'waiting';
CREATE INDEX alert_notifications_withheld ON weir.alert_notifications (subject) WHERE withheld <> '{}';
CREATE INDEX alert_notifications_tests ON weir.alert_notifications (organization, project, environment, created_at_ms)
    WHERE kind = 'test';
CREATE INDEX alert_notifications_settled ON weir.alert_notifications (settled_at_ms) WHERE settled_at_ms IS NOT NULL;
