-- What the relays of the parts need to know of each other: which part ended its relay, and perhaps because of what.
CREATE TABLE IF NOT EXISTS weir_outbox.parts (
    part smallint PRIMARY KEY,
    -- How many relays began with this part since one could say that all is well. Each but the last has ended.
    starts int NOT NULL,
    -- The message that goes out alone, and how often it did: it may be what ends the relays.
    suspect uuid,
    tries int NOT NULL DEFAULT 0
);
