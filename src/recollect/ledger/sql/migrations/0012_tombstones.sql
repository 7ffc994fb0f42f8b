-- Keyed digests of turns that were forgotten or erased, by which a resent history is recognised. `user_id` is a digest,
-- as in `erasures`: tombstones outlive the erasure of their user.
DROP TABLE IF EXISTS tombstones;

CREATE TABLE tombstones (
    user_id TEXT {binary} NOT NULL,
    digest TEXT {binary} NOT NULL,
    forgotten_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, digest)
) {clustered};

-- Keys of tombstones that were imported from other ledgers; this ledger's own are derived from its secret.
DROP TABLE IF EXISTS tombstone_keys;

CREATE TABLE tombstone_keys (
    user_id TEXT {binary} NOT NULL,
    "key" TEXT {binary} NOT NULL,
    PRIMARY KEY (user_id, "key")
) {clustered};

INSERT INTO meta (name, value) VALUES ('tombstone_secret', {random_hex}) ON CONFLICT (name) DO NOTHING;
