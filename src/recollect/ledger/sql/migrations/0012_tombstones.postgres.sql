-- Tombstones have a digest for a name.
ALTER TABLE tombstones ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON tombstones;

CREATE POLICY mine ON tombstones USING ({mine_by_digest});

ALTER TABLE tombstone_keys ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON tombstone_keys;

CREATE POLICY mine ON tombstone_keys USING ({mine_by_digest});
