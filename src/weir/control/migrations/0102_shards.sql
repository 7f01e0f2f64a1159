-- Over how many shards of Redis the environments are spread; null until the next start of Weir.
ALTER TABLE weir.broker_epoch ADD COLUMN shards integer;
