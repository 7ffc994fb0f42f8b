CREATE TABLE api_keys (
    id TEXT COLLATE BINARY PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    user_id TEXT COLLATE BINARY,
    project_id TEXT COLLATE BINARY,
    rights TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    last_used_at BIGINT
)
CREATE TABLE audit (
    minute BIGINT NOT NULL,
    who TEXT COLLATE BINARY NOT NULL,
    user_digest TEXT COLLATE BINARY NOT NULL,
    route TEXT COLLATE BINARY NOT NULL,
    PRIMARY KEY (minute, who, user_digest, route)
) WITHOUT ROWID
CREATE TABLE chores (
    user_id TEXT COLLATE BINARY NOT NULL,
    project_id TEXT COLLATE BINARY NOT NULL,
    chore TEXT NOT NULL,
    queued_at BIGINT NOT NULL,
    started_at BIGINT,
    PRIMARY KEY (user_id, project_id, chore)
) WITHOUT ROWID
CREATE TABLE conversations (
    user_id TEXT COLLATE BINARY NOT NULL,
    project_id TEXT COLLATE BINARY NOT NULL,
    session_id TEXT COLLATE BINARY NOT NULL,
    turn_count BIGINT NOT NULL,
    started_at BIGINT,
    last_turn_at BIGINT,
    closed_at BIGINT,
    version BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (user_id, project_id, session_id)
) WITHOUT ROWID
CREATE INDEX conversations_by_time
    ON conversations ((COALESCE(last_turn_at, 0)), user_id, project_id, session_id)
CREATE INDEX conversations_of_user
    ON conversations (user_id, (COALESCE(last_turn_at, 0)), project_id, session_id)
CREATE INDEX conversations_open ON conversations ((COALESCE(last_turn_at, 0)), user_id, project_id, session_id)
    WHERE closed_at IS NULL
CREATE TABLE current_model (
    only_row BIGINT PRIMARY KEY CHECK (only_row = 1),
    model BIGINT NOT NULL
)
CREATE TABLE erasures (
    id TEXT COLLATE BINARY PRIMARY KEY,
    user_id TEXT COLLATE BINARY NOT NULL,
    target TEXT NOT NULL,
    project_id TEXT COLLATE BINARY NOT NULL,
    session_id TEXT COLLATE BINARY NOT NULL,
    ids TEXT NOT NULL,
    counts TEXT NOT NULL,
    epoch BIGINT,
    requested_at BIGINT NOT NULL,
    finished_at BIGINT
)
CREATE INDEX erasures_by_time ON erasures (requested_at)
CREATE INDEX erasures_of_user ON erasures (user_id, epoch)
CREATE INDEX erasures_unfinished ON erasures (requested_at) WHERE finished_at IS NULL
CREATE TABLE evidence (
    user_id TEXT COLLATE BINARY NOT NULL,
    source_id TEXT COLLATE BINARY NOT NULL,
    row BIGINT NOT NULL,
    PRIMARY KEY (user_id, source_id, row)
) WITHOUT ROWID
CREATE INDEX evidence_of_memory ON evidence (user_id, row)
CREATE TABLE fed (
    user_id TEXT COLLATE BINARY NOT NULL,
    index_name TEXT COLLATE BINARY NOT NULL,
    revision BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    noted_at BIGINT NOT NULL,
    waiting BIGINT NOT NULL,
    waiting_at BIGINT NOT NULL,
    settled BIGINT NOT NULL,
    PRIMARY KEY (user_id, index_name)
) WITHOUT ROWID
CREATE TABLE feeders (
    index_name TEXT COLLATE BINARY NOT NULL PRIMARY KEY,
    feeder TEXT NOT NULL,
    leased_until BIGINT NOT NULL
)
CREATE TABLE history (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id TEXT COLLATE BINARY NOT NULL,
    memory_id TEXT COLLATE BINARY NOT NULL,
    batch TEXT COLLATE BINARY NOT NULL,
    verb TEXT NOT NULL,
    at BIGINT NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    version BIGINT NOT NULL,
    undoes BIGINT,
    before TEXT,
    after TEXT
, actor TEXT)
CREATE INDEX history_by_batch ON history (user_id, batch)
CREATE INDEX history_by_memory ON history (user_id, memory_id, id)
CREATE INDEX history_by_user ON history (user_id, id)
CREATE TABLE idempotency (
    user_id TEXT COLLATE BINARY NOT NULL,
    "key" TEXT COLLATE BINARY NOT NULL,
    digest TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    result TEXT NOT NULL,
    PRIMARY KEY (user_id, "key")
)
CREATE INDEX idempotency_by_age ON idempotency (created_at)
CREATE TABLE job_queues (
    user_id TEXT COLLATE BINARY NOT NULL,
    priority BIGINT NOT NULL,
    ready_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, priority)
) WITHOUT ROWID
CREATE INDEX job_queues_in_order ON job_queues (priority, ready_at, user_id)
CREATE TABLE job_users (
    user_id TEXT COLLATE BINARY PRIMARY KEY,
    served_at BIGINT NOT NULL DEFAULT 0,
    busy_until BIGINT NOT NULL DEFAULT 0,
    failures BIGINT NOT NULL DEFAULT 0
, failed_at BIGINT NOT NULL DEFAULT 0)
CREATE INDEX job_users_failing ON job_users (failures) WHERE failures > 0
CREATE TABLE jobs (
    user_id TEXT COLLATE BINARY NOT NULL,
    id TEXT COLLATE BINARY NOT NULL,
    project_id TEXT COLLATE BINARY NOT NULL,
    session_id TEXT COLLATE BINARY NOT NULL,
    kind TEXT NOT NULL,
    "key" TEXT COLLATE BINARY NOT NULL,
    slot TEXT COLLATE BINARY NOT NULL,
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
)
CREATE INDEX jobs_by_state ON jobs (state, id)
CREATE INDEX jobs_due ON jobs (next_at) WHERE next_at IS NOT NULL
CREATE INDEX jobs_in_turn ON jobs (user_id, priority, next_at, id) WHERE next_at IS NOT NULL
CREATE INDEX jobs_of_user ON jobs (user_id, state, slot, id)
CREATE INDEX jobs_waited_for ON jobs (next_at) WHERE next_at IS NOT NULL AND priority >= 0
CREATE TABLE memories (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT COLLATE BINARY NOT NULL,
    user_id TEXT COLLATE BINARY NOT NULL,
    project_id TEXT COLLATE BINARY NOT NULL,
    session_id TEXT COLLATE BINARY NOT NULL,
    level TEXT NOT NULL,
    place TEXT COLLATE BINARY NOT NULL,
    status TEXT NOT NULL,
    type TEXT NOT NULL,
    category TEXT NOT NULL,
    content TEXT NOT NULL,
    "key" TEXT COLLATE BINARY,
    importance REAL NOT NULL,
    confidence REAL NOT NULL,
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
    fingerprint TEXT COLLATE BINARY,
    term_count BIGINT NOT NULL,
    body TEXT NOT NULL, traits BIGINT NOT NULL DEFAULT 0, speaker TEXT NOT NULL DEFAULT '',
    UNIQUE (user_id, id)
)
CREATE INDEX memories_by_revision ON memories (user_id, revision)
CREATE INDEX memories_by_time ON memories (user_id, created_at, id)
CREATE INDEX memories_expiring ON memories (expires_at) WHERE expires_at IS NOT NULL
CREATE INDEX memories_forgotten ON memories (updated_at) WHERE status = 'forgotten'
CREATE UNIQUE INDEX memories_one_value_a_key ON memories (user_id, place, category, "key")
    WHERE status = 'active' AND "key" IS NOT NULL
CREATE INDEX memories_rules ON memories (user_id, category)
    WHERE category IN ('constraint', 'instruction') AND "key" IS NULL
CREATE UNIQUE INDEX memories_said_once ON memories (user_id, place, fingerprint)
    WHERE status = 'active' AND fingerprint IS NOT NULL
CREATE TABLE mentions (
    user_id TEXT COLLATE BINARY NOT NULL,
    name TEXT COLLATE BINARY NOT NULL,
    row BIGINT NOT NULL,
    kind TEXT NOT NULL,
    PRIMARY KEY (user_id, name, row, kind)
) WITHOUT ROWID
CREATE INDEX mentions_of_memory ON mentions (row)
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)
CREATE TABLE model_states (
    model BIGINT PRIMARY KEY,
    spec TEXT NOT NULL DEFAULT '',
    url TEXT NOT NULL DEFAULT '',
    asked_dimensions BIGINT NOT NULL DEFAULT 0,
    current_at BIGINT,
    retired_at BIGINT,
    embedded BIGINT NOT NULL DEFAULT 0,
    to_embed BIGINT NOT NULL DEFAULT 0,
    held_by TEXT NOT NULL DEFAULT '',
    held_until BIGINT NOT NULL DEFAULT 0
)
CREATE TABLE models (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT COLLATE BINARY NOT NULL,
    dimensions BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (name, dimensions)
)
CREATE TABLE moments (
    name TEXT PRIMARY KEY,
    at BIGINT NOT NULL
)
CREATE TABLE responses (
    user_id TEXT COLLATE BINARY NOT NULL,
    id TEXT COLLATE BINARY NOT NULL,
    project_id TEXT COLLATE BINARY NOT NULL,
    session_id TEXT COLLATE BINARY NOT NULL,
    root_id TEXT COLLATE BINARY NOT NULL,
    previous_id TEXT COLLATE BINARY NOT NULL,
    thread_id TEXT COLLATE BINARY NOT NULL,
    upstream TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    names TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (user_id, id)
)
CREATE INDEX responses_expiring ON responses (expires_at) WHERE expires_at IS NOT NULL
CREATE INDEX responses_of_chain ON responses (user_id, root_id, created_at)
CREATE TABLE sqlite_sequence(name,seq)
CREATE VIRTUAL TABLE terms USING fts5(words, content='', tokenize="ascii tokenchars '.'")
CREATE TABLE 'terms_config'(k PRIMARY KEY, v) WITHOUT ROWID
CREATE TABLE 'terms_data'(id INTEGER PRIMARY KEY, block BLOB)
CREATE TABLE 'terms_docsize'(id INTEGER PRIMARY KEY, sz BLOB)
CREATE TABLE 'terms_idx'(segid, term, pgno, PRIMARY KEY(segid, term)) WITHOUT ROWID
CREATE VIRTUAL TABLE terms_said USING fts5vocab(terms, instance)
CREATE TABLE thread_items (
    user_id TEXT COLLATE BINARY NOT NULL,
    thread_id TEXT COLLATE BINARY NOT NULL,
    position BIGINT NOT NULL,
    id TEXT COLLATE BINARY NOT NULL,
    names TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (user_id, thread_id, position)
) WITHOUT ROWID
CREATE UNIQUE INDEX thread_items_by_id ON thread_items (user_id, thread_id, id)
CREATE TABLE threads (
    user_id TEXT COLLATE BINARY NOT NULL,
    id TEXT COLLATE BINARY NOT NULL,
    project_id TEXT COLLATE BINARY NOT NULL,
    session_id TEXT COLLATE BINARY NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    body TEXT NOT NULL,
    PRIMARY KEY (user_id, id)
)
CREATE INDEX threads_expiring ON threads (expires_at) WHERE expires_at IS NOT NULL
CREATE TABLE tombstone_keys (
    user_id TEXT COLLATE BINARY NOT NULL,
    "key" TEXT COLLATE BINARY NOT NULL,
    PRIMARY KEY (user_id, "key")
) WITHOUT ROWID
CREATE TABLE tombstones (
    user_id TEXT COLLATE BINARY NOT NULL,
    digest TEXT COLLATE BINARY NOT NULL,
    forgotten_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, digest)
) WITHOUT ROWID
CREATE INDEX tombstones_by_time ON tombstones (forgotten_at)
CREATE TABLE turns (
    user_id TEXT COLLATE BINARY NOT NULL,
    project_id TEXT COLLATE BINARY NOT NULL,
    session_id TEXT COLLATE BINARY NOT NULL,
    position BIGINT NOT NULL,
    id TEXT COLLATE BINARY NOT NULL,
    parent_id TEXT COLLATE BINARY,
    role TEXT NOT NULL,
    said_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, project_id, session_id, position)
) WITHOUT ROWID
CREATE TABLE usage (
    user_id TEXT COLLATE BINARY NOT NULL,
    day BIGINT NOT NULL,
    step TEXT NOT NULL,
    model TEXT NOT NULL,
    calls BIGINT NOT NULL,
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    PRIMARY KEY (user_id, day, step, model)
)
CREATE TABLE usage_of_all (
    day BIGINT NOT NULL,
    slot BIGINT NOT NULL,
    calls BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    PRIMARY KEY (day, slot)
) WITHOUT ROWID
CREATE TABLE users (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id TEXT COLLATE BINARY NOT NULL UNIQUE,
    revision BIGINT NOT NULL DEFAULT 0,
    epoch BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL
)
CREATE TABLE vectors (
    user_id TEXT COLLATE BINARY NOT NULL,
    model BIGINT NOT NULL,
    row BIGINT NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (user_id, model, row)
) WITHOUT ROWID
