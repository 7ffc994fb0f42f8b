-- The turns (and other memories) that each memory was derived from, one row each: the memories learned from a turn are
-- found by an index, not by reading every body. It repeats the list `evidence` in the body of a memory.
DROP TABLE IF EXISTS evidence;

CREATE TABLE evidence (
    user_id TEXT {binary} NOT NULL,
    source_id TEXT {binary} NOT NULL,
    row BIGINT NOT NULL,
    PRIMARY KEY (user_id, source_id, row)
) {clustered};

CREATE INDEX evidence_of_memory ON evidence (user_id, row);
