-- What is known of an embedding model beside its vectors: how the settings name it, when it began to be searched and
-- when another took its place, how far its vectors are, and who is making them.
DROP TABLE IF EXISTS model_states;

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
);

-- One row says which model is searched, so that of two who change it one comes first. Of a ledger that was made before,
-- it is the model with the most vectors.
DROP TABLE IF EXISTS current_model;

CREATE TABLE current_model (
    only_row BIGINT PRIMARY KEY CHECK (only_row = 1),
    model BIGINT NOT NULL
);

INSERT INTO current_model (only_row, model)
    SELECT 1, m.number FROM models m
    JOIN (SELECT model, count(*) AS vectors FROM vectors GROUP BY model) v ON v.model = m.number
    ORDER BY v.vectors DESC, m.number DESC LIMIT 1;

INSERT INTO model_states (model, current_at)
    SELECT m.number, m.created_at FROM models m JOIN current_model c ON c.model = m.number;
