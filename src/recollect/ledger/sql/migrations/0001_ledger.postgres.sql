-- Full text. It is given terms, each led by its user's number, so that a search reads that user's lists only.
-- A table of its own: a memory is then written once, and counting an access copies no words.
CREATE TABLE terms (
    row BIGINT PRIMARY KEY REFERENCES memories ON DELETE CASCADE,
    words tsvector NOT NULL
);

CREATE INDEX terms_by_word ON terms USING gin (words) WITH (fastupdate = off);
