-- Each user's rows are kept apart by the database as well: a statement that forgets to name its user finds and changes
-- nothing of anyone else's. {mine} is in the dialect. A new table with a user's name in it needs the same two statements.
ALTER TABLE users ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON users;

CREATE POLICY mine ON users USING ({mine});

ALTER TABLE memories ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON memories;

CREATE POLICY mine ON memories USING ({mine});

ALTER TABLE vectors ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON vectors;

CREATE POLICY mine ON vectors USING ({mine});

ALTER TABLE history ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON history;

CREATE POLICY mine ON history USING ({mine});

ALTER TABLE turns ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON turns;

CREATE POLICY mine ON turns USING ({mine});

ALTER TABLE conversations ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON conversations;

CREATE POLICY mine ON conversations USING ({mine});

ALTER TABLE jobs ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON jobs;

CREATE POLICY mine ON jobs USING ({mine});

ALTER TABLE job_users ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON job_users;

CREATE POLICY mine ON job_users USING ({mine});

ALTER TABLE job_queues ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON job_queues;

CREATE POLICY mine ON job_queues USING ({mine});

ALTER TABLE chores ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON chores;

CREATE POLICY mine ON chores USING ({mine});

ALTER TABLE responses ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON responses;

CREATE POLICY mine ON responses USING ({mine});

ALTER TABLE threads ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON threads;

CREATE POLICY mine ON threads USING ({mine});

ALTER TABLE thread_items ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON thread_items;

CREATE POLICY mine ON thread_items USING ({mine});

ALTER TABLE idempotency ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON idempotency;

CREATE POLICY mine ON idempotency USING ({mine});

ALTER TABLE usage ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON usage;

CREATE POLICY mine ON usage USING ({mine});

-- Erasures have a digest for a name.
ALTER TABLE erasures ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON erasures;

CREATE POLICY mine ON erasures USING ({mine_by_digest});

-- The full text learns whose its rows are; written anew, because that is faster than changing every row.
CREATE TABLE terms_of_users (
    row BIGINT PRIMARY KEY REFERENCES memories ON DELETE CASCADE,
    user_id TEXT {binary} NOT NULL,
    words tsvector NOT NULL
);

INSERT INTO terms_of_users (row, user_id, words)
    SELECT t.row, m.user_id, t.words FROM terms t JOIN memories m ON m.row = t.row;

DROP TABLE terms;

ALTER TABLE terms_of_users RENAME TO terms;

ALTER TABLE terms ALTER COLUMN words SET STATISTICS 0;

CREATE INDEX terms_by_word ON terms USING gin (words) WITH (fastupdate = off);

ALTER TABLE terms ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

-- An index is entered by a condition only after all policies have been, unless PostgreSQL knows that it tells nothing
-- of other rows, which it does not of @@. So the word that is looked for is part of the policy; without one, there is
-- none that a row must not have.
CREATE POLICY mine ON terms
    USING (({mine}) AND words @@
        (SELECT COALESCE(NULLIF(current_setting('recollect.word', true), ''), '!nothing')::tsquery))
    WITH CHECK ({mine});

-- For each word the rows under it, and how often it is said in each. With weights of one, the cover density of a single
-- word is the number of its positions.
CREATE OR REPLACE FUNCTION recollect_said(asked text[]) RETURNS TABLE (rows bigint[], times real[])
LANGUAGE plpgsql AS $$
DECLARE word text
; BEGIN
    FOREACH word IN ARRAY asked LOOP
        PERFORM set_config('recollect.word', word, true)
        ; RETURN QUERY SELECT array_agg(t.row ORDER BY t.row),
            array_agg(ts_rank_cd('{1, 1, 1, 1}', t.words, word::tsquery) ORDER BY t.row)
            FROM terms t WHERE t.words @@ word::tsquery
    ; END LOOP
    ; PERFORM set_config('recollect.word', '', true)
; END
$$;
