-- How far an index with a store of its own was told what changed of a user.
DROP TABLE IF EXISTS fed;

CREATE TABLE fed (
    user_id TEXT {binary} NOT NULL,
    index_name TEXT {binary} NOT NULL,
    revision BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    PRIMARY KEY (user_id, index_name)
) {clustered};

-- Who feeds an index, and until when nobody else does.
DROP TABLE IF EXISTS feeders;

CREATE TABLE feeders (
    index_name TEXT {binary} NOT NULL PRIMARY KEY,
    feeder TEXT NOT NULL,
    leased_until BIGINT NOT NULL
);
