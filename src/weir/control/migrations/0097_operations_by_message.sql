-- An operation is found by its messages: their least and greatest id, which lie close together, because one process made
-- them one after another. Null in rows that an older release wrote, which are looked through until they are deleted.
CREATE TYPE weir.message_ids AS RANGE (subtype = uuid);
ALTER TABLE weir.operations ADD COLUMN message_ids weir.message_ids;
CREATE INDEX operations_by_message ON weir.operations USING gist (message_ids);
