-- Pruning looks for the oldest tombstones of all users.
CREATE INDEX IF NOT EXISTS tombstones_by_time ON tombstones (forgotten_at);
