-- How far an index with a store of its own was told what changed of a user, and when. What it was told need not be seen
-- by a search at once: `waiting` is a revision it was told some time ago, `settled` one that every search sees.
DROP TABLE IF EXISTS fed;

CREATE TABLE fed (
    user_id TEXT {binary} NOT NULL,
    index_name TEXT {binary} NOT NULL,
    revision BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    noted_at BIGINT NOT NULL,
    waiting BIGINT NOT NULL,
    waiting_at BIGINT NOT NULL,
    settled BIGINT NOT NULL,
    PRIMARY KEY (user_id, index_name)
) {clustered};

-- Who feeds an index, and until when nobody else does.
DROP TABLE IF EXISTS feeders;

CREATE TABLE feeders (
    index_name TEXT {binary} NOT NULL PRIMARY KEY,
    feeder TEXT NOT NULL,
    leased_until BIGINT NOT NULL
);
