-- What a mover is about to carry, counted before it begins: a letter that ends its mover is found by smaller batches.
CREATE TABLE weir.mover_tries (
    shard integer PRIMARY KEY,
    -- How often a batch began and did not end, less the batches that went well since.
    failures integer NOT NULL,
    -- The last batch that was stored when this one began.
    after_batch uuid,
    -- The first letter of the batch, and how often it was carried alone.
    first uuid NOT NULL,
    tries integer NOT NULL
);
