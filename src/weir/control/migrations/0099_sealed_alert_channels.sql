-- Credentials of alert channels, sealed like secrets; until a start seals them, those of older channels stay in `config`.
ALTER TABLE weir.alert_channels
    ADD COLUMN key_id text,
    ADD COLUMN sealed bytea,
    ADD CHECK ((key_id IS NULL) = (sealed IS NULL));
