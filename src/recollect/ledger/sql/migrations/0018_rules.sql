-- Constraints and instructions are recalled for every question.
CREATE INDEX IF NOT EXISTS memories_rules ON memories (user_id, category)
    WHERE category IN ('constraint', 'instruction') AND "key" IS NULL;
