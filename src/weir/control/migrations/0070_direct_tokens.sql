-- Whether a token is also a user of Redis, for clients in direct mode.
ALTER TABLE weir.tokens ADD COLUMN direct boolean NOT NULL DEFAULT false;
