-- Of which models a user's vectors are kept as pgvector keeps them, too: from now on (`halved`), and all of them
-- (`near`). Nothing of that needs the extension; what does is made where there is one (index/pgvector_sql.py).
ALTER TABLE users ADD COLUMN IF NOT EXISTS halved BIGINT[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS near BIGINT[] NOT NULL DEFAULT '{}';
