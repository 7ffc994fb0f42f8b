-- When a chore of upkeep was last queued for a user, or for one project of theirs, and when the last run of it that went
-- well had begun.
DROP TABLE IF EXISTS chores;

CREATE TABLE chores (
    user_id TEXT {binary} NOT NULL,
    project_id TEXT {binary} NOT NULL,
    chore TEXT NOT NULL,
    queued_at BIGINT NOT NULL,
    started_at BIGINT,
    PRIMARY KEY (user_id, project_id, chore)
) {clustered};

-- When the store as a whole was last looked after, and what was found of its clock.
DROP TABLE IF EXISTS moments;

CREATE TABLE moments (
    name TEXT PRIMARY KEY,
    at BIGINT NOT NULL
);

-- Failures of long ago say nothing about how work goes now.
ALTER TABLE job_users ADD COLUMN failed_at BIGINT NOT NULL DEFAULT 0;

-- What people wait for; chores can wait.
CREATE INDEX jobs_waited_for ON jobs (next_at) WHERE next_at IS NOT NULL AND priority >= 0;

-- Sessions in the order they are listed in: all of them, one user's, and those that are open.
CREATE INDEX IF NOT EXISTS conversations_by_time
    ON conversations ((COALESCE(last_turn_at, 0)), user_id, project_id, session_id);

CREATE INDEX IF NOT EXISTS conversations_of_user
    ON conversations (user_id, (COALESCE(last_turn_at, 0)), project_id, session_id);

DROP INDEX IF EXISTS conversations_open;

CREATE INDEX conversations_open ON conversations ((COALESCE(last_turn_at, 0)), user_id, project_id, session_id)
    WHERE closed_at IS NULL;
