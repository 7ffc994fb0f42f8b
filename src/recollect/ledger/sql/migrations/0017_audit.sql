-- Who looked at whose memories in the page with a key for several users: once a minute for each route. The user is a
-- digest, so that entries can be kept after an erasure.
DROP TABLE IF EXISTS audit;

CREATE TABLE audit (
    minute BIGINT NOT NULL,
    who TEXT {binary} NOT NULL,
    user_digest TEXT {binary} NOT NULL,
    route TEXT {binary} NOT NULL,
    PRIMARY KEY (minute, who, user_digest, route)
) {clustered};
