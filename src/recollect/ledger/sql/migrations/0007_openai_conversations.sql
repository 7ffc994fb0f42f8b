-- Responses, in the place of a table that nobody had used, and threads: what OpenAI's API calls conversations. `names`
-- lists the turns and memories a row holds words of. `root_id` is the first response of a chain.
DROP TABLE IF EXISTS responses;

CREATE TABLE responses (
    user_id TEXT {binary} NOT NULL,
    id TEXT {binary} NOT NULL,
    project_id TEXT {binary} NOT NULL,
    session_id TEXT {binary} NOT NULL,
    root_id TEXT {binary} NOT NULL,
    previous_id TEXT {binary} NOT NULL,
    thread_id TEXT {binary} NOT NULL,
    upstream TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    names TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (user_id, id)
);

CREATE INDEX responses_expiring ON responses (expires_at) WHERE expires_at IS NOT NULL;

CREATE INDEX responses_of_chain ON responses (user_id, root_id, created_at);

DROP TABLE IF EXISTS threads;

CREATE TABLE threads (
    user_id TEXT {binary} NOT NULL,
    id TEXT {binary} NOT NULL,
    project_id TEXT {binary} NOT NULL,
    session_id TEXT {binary} NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    body TEXT NOT NULL,
    PRIMARY KEY (user_id, id)
);

CREATE INDEX threads_expiring ON threads (expires_at) WHERE expires_at IS NOT NULL;

DROP TABLE IF EXISTS thread_items;

CREATE TABLE thread_items (
    user_id TEXT {binary} NOT NULL,
    thread_id TEXT {binary} NOT NULL,
    position BIGINT NOT NULL,
    id TEXT {binary} NOT NULL,
    names TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (user_id, thread_id, position)
) {clustered};

CREATE UNIQUE INDEX thread_items_by_id ON thread_items (user_id, thread_id, id);
