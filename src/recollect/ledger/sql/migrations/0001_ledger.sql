-- Everything Recollect keeps. {words} are filled in by the dialect; a statement ends with ";" at the end of a line.

CREATE TABLE users (
    number {serial_key},
    user_id TEXT {binary} NOT NULL UNIQUE,
    revision BIGINT NOT NULL DEFAULT 0,
    epoch BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL
);

CREATE TABLE memories (
    row {serial_key},
    id TEXT {binary} NOT NULL,
    user_id TEXT {binary} NOT NULL,
    project_id TEXT {binary} NOT NULL,
    session_id TEXT {binary} NOT NULL,
    level TEXT NOT NULL,
    place TEXT {binary} NOT NULL,
    status TEXT NOT NULL,
    type TEXT NOT NULL,
    category TEXT NOT NULL,
    content TEXT NOT NULL,
    "key" TEXT {binary},
    importance {real} NOT NULL,
    confidence {real} NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    occurred_at BIGINT,
    valid_from BIGINT,
    valid_to BIGINT,
    expires_at BIGINT,
    last_accessed_at BIGINT,
    access_count BIGINT NOT NULL DEFAULT 0,
    version BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    fingerprint TEXT {binary},
    term_count BIGINT NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (user_id, id)
);

CREATE INDEX memories_by_time ON memories (user_id, created_at, id);

CREATE INDEX memories_by_revision ON memories (user_id, revision);

CREATE INDEX memories_expiring ON memories (expires_at) WHERE expires_at IS NOT NULL;

CREATE UNIQUE INDEX memories_said_once ON memories (user_id, place, fingerprint)
    WHERE status = 'active' AND fingerprint IS NOT NULL;

CREATE UNIQUE INDEX memories_one_value_a_key ON memories (user_id, place, category, "key")
    WHERE status = 'active' AND "key" IS NOT NULL;

CREATE TABLE vectors (
    user_id TEXT {binary} NOT NULL,
    model BIGINT NOT NULL,
    row BIGINT NOT NULL,
    vector {bytes} NOT NULL,
    PRIMARY KEY (user_id, model, row)
) {clustered};

CREATE TABLE models (
    number {serial_key},
    name TEXT {binary} NOT NULL,
    dimensions BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (name, dimensions)
);

CREATE TABLE history (
    id {serial_key},
    user_id TEXT {binary} NOT NULL,
    memory_id TEXT {binary} NOT NULL,
    batch TEXT {binary} NOT NULL,
    verb TEXT NOT NULL,
    at BIGINT NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    version BIGINT NOT NULL,
    undoes BIGINT,
    before TEXT,
    after TEXT
);

CREATE INDEX history_by_user ON history (user_id, id);

CREATE INDEX history_by_batch ON history (user_id, batch);

CREATE INDEX history_by_memory ON history (user_id, memory_id, id);

CREATE TABLE turns (
    user_id TEXT {binary} NOT NULL,
    project_id TEXT {binary} NOT NULL,
    session_id TEXT {binary} NOT NULL,
    position BIGINT NOT NULL,
    id TEXT {binary} NOT NULL,
    parent_id TEXT {binary},
    role TEXT NOT NULL,
    said_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, project_id, session_id, position)
) {clustered};

CREATE TABLE conversations (
    user_id TEXT {binary} NOT NULL,
    project_id TEXT {binary} NOT NULL,
    session_id TEXT {binary} NOT NULL,
    turn_count BIGINT NOT NULL,
    started_at BIGINT,
    last_turn_at BIGINT,
    closed_at BIGINT,
    version BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (user_id, project_id, session_id)
) {clustered};

CREATE INDEX conversations_open ON conversations (last_turn_at) WHERE closed_at IS NULL;

CREATE TABLE jobs (
    id TEXT {binary} PRIMARY KEY,
    user_id TEXT {binary} NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    priority BIGINT NOT NULL,
    due_at BIGINT NOT NULL,
    tries BIGINT NOT NULL DEFAULT 0,
    leased_by TEXT,
    leased_until BIGINT,
    created_at BIGINT NOT NULL,
    finished_at BIGINT,
    body TEXT NOT NULL,
    result TEXT,
    error TEXT
);

CREATE INDEX jobs_due ON jobs (status, priority, due_at);

CREATE INDEX jobs_by_user ON jobs (user_id, status);

CREATE TABLE responses (
    user_id TEXT {binary} NOT NULL,
    id TEXT {binary} NOT NULL,
    kind TEXT NOT NULL,
    parent_id TEXT {binary},
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    body TEXT NOT NULL,
    PRIMARY KEY (user_id, id)
);

CREATE INDEX responses_expiring ON responses (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE idempotency (
    user_id TEXT {binary} NOT NULL,
    "key" TEXT {binary} NOT NULL,
    digest TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    result TEXT NOT NULL,
    PRIMARY KEY (user_id, "key")
);

CREATE INDEX idempotency_by_age ON idempotency (created_at);

CREATE TABLE api_keys (
    id TEXT {binary} PRIMARY KEY,
    hash {bytes} NOT NULL UNIQUE,
    name TEXT NOT NULL,
    user_id TEXT {binary},
    project_id TEXT {binary},
    rights TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    last_used_at BIGINT
);

CREATE TABLE usage (
    user_id TEXT {binary} NOT NULL,
    day BIGINT NOT NULL,
    step TEXT NOT NULL,
    model TEXT NOT NULL,
    calls BIGINT NOT NULL,
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    PRIMARY KEY (user_id, day, step, model)
);

CREATE TABLE erasures (
    id TEXT {binary} PRIMARY KEY,
    user_id TEXT {binary} NOT NULL,
    target TEXT NOT NULL,
    requested_at BIGINT NOT NULL,
    finished_at BIGINT,
    receipt TEXT
);
