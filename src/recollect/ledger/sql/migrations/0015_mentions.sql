-- The names that each memory mentions and the keys of keyed facts, one row each: memories about the same name are found
-- by an index. Derived from the text of a memory; turns have none. Filled when the ledger is opened, because SQL cannot
-- find names.
DROP TABLE IF EXISTS mentions;

CREATE TABLE mentions (
    user_id TEXT {binary} NOT NULL,
    name TEXT {binary} NOT NULL,
    row BIGINT NOT NULL,
    kind TEXT NOT NULL,
    PRIMARY KEY (user_id, name, row, kind)
) {clustered};

CREATE INDEX mentions_of_memory ON mentions (row);
