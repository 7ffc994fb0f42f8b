-- Jobs, in the place of a table that nobody had used. `next_at` is when a leaser should look at the job again: when it
-- is due, or when its lease runs out; one that is over has none. `slot` stands for kind and key.
DROP TABLE IF EXISTS jobs;

CREATE TABLE jobs (
    user_id TEXT {binary} NOT NULL,
    id TEXT {binary} NOT NULL,
    project_id TEXT {binary} NOT NULL,
    session_id TEXT {binary} NOT NULL,
    kind TEXT NOT NULL,
    "key" TEXT {binary} NOT NULL,
    slot TEXT {binary} NOT NULL,
    state TEXT NOT NULL,
    priority BIGINT NOT NULL,
    tries BIGINT NOT NULL DEFAULT 0,
    due_at BIGINT NOT NULL,
    next_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    worker TEXT,
    lease TEXT,
    leased_until BIGINT,
    payload TEXT NOT NULL,
    error TEXT,
    result TEXT,
    PRIMARY KEY (user_id, id)
);

CREATE INDEX jobs_of_user ON jobs (user_id, state, slot, id);

CREATE INDEX jobs_by_state ON jobs (state, id);

CREATE INDEX jobs_in_turn ON jobs (user_id, priority, next_at, id) WHERE next_at IS NOT NULL;

CREATE INDEX jobs_due ON jobs (next_at) WHERE next_at IS NOT NULL;

-- Whoever touches a user's jobs holds this row first.
DROP TABLE IF EXISTS job_users;

CREATE TABLE job_users (
    user_id TEXT {binary} PRIMARY KEY,
    served_at BIGINT NOT NULL DEFAULT 0,
    busy_until BIGINT NOT NULL DEFAULT 0,
    failures BIGINT NOT NULL DEFAULT 0
);

CREATE INDEX job_users_failing ON job_users (failures) WHERE failures > 0;

-- From when on a user has something to do at a priority: leasers go by this, so that they look at users, not at jobs.
DROP TABLE IF EXISTS job_queues;

CREATE TABLE job_queues (
    user_id TEXT {binary} NOT NULL,
    priority BIGINT NOT NULL,
    ready_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, priority)
) {clustered};

CREATE INDEX job_queues_in_order ON job_queues (priority, ready_at, user_id);
