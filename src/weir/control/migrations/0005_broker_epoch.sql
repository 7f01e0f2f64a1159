-- Which life of Redis belongs to this control store; another one, or an empty one, must not pass for it.
CREATE TABLE weir.broker_epoch (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    epoch text NOT NULL,
    began_at_ms bigint NOT NULL
);
