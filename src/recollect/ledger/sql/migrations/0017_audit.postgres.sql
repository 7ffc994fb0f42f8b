-- Whether a person or a program made a change; not recorded before.
ALTER TABLE history ADD COLUMN IF NOT EXISTS actor TEXT;
