-- Erasures, in the place of a table that nobody had used: what it takes to do one again on an older backup, and nothing
-- of what was erased. `user_id` is a digest. `epoch` is set where all of a user went: what counts the erasures of whoever
-- comes by that name again goes on from it. One without `finished_at` may have left bytes behind that are yet to go.
DROP TABLE IF EXISTS erasures;

CREATE TABLE erasures (
    id TEXT {binary} PRIMARY KEY,
    user_id TEXT {binary} NOT NULL,
    target TEXT NOT NULL,
    project_id TEXT {binary} NOT NULL,
    session_id TEXT {binary} NOT NULL,
    ids TEXT NOT NULL,
    counts TEXT NOT NULL,
    epoch BIGINT,
    requested_at BIGINT NOT NULL,
    finished_at BIGINT
);

CREATE INDEX erasures_of_user ON erasures (user_id, epoch);

CREATE INDEX erasures_by_time ON erasures (requested_at);

CREATE INDEX erasures_unfinished ON erasures (requested_at) WHERE finished_at IS NULL;

-- What was forgotten, by when: it is removed some time after.
CREATE INDEX IF NOT EXISTS memories_forgotten ON memories (updated_at) WHERE status = 'forgotten';
