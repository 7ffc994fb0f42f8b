-- Full text. It is given terms, each led by its user's number, so that a search reads that user's lists only.
ALTER TABLE memories ADD COLUMN terms tsvector, ADD COLUMN term_count BIGINT;

CREATE INDEX memories_by_term ON memories USING gin (terms) WITH (fastupdate = off);
