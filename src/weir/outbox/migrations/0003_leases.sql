-- Which relay has a part, and until when. Not a lock of its session: behind a pooler, sessions belong to nobody.
ALTER TABLE weir_outbox.parts ADD COLUMN IF NOT EXISTS holder uuid, ADD COLUMN IF NOT EXISTS held_until timestamptz;
