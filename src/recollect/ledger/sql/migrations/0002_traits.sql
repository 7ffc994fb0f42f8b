-- What can be told of a memory at a glance, and who said it: what indexes hold beside the vectors.
ALTER TABLE memories ADD COLUMN traits BIGINT NOT NULL DEFAULT 0;

ALTER TABLE memories ADD COLUMN speaker TEXT NOT NULL DEFAULT '';
