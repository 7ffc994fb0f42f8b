INSERT INTO evidence (user_id, source_id, row)
    SELECT m.user_id, e.source_id, m.row
    FROM memories m CROSS JOIN LATERAL jsonb_array_elements_text(m.body::jsonb -> 'evidence') AS e (source_id)
    WHERE m.body LIKE '%"evidence":%' AND jsonb_typeof(m.body::jsonb -> 'evidence') = 'array'
    ON CONFLICT DO NOTHING;

ALTER TABLE evidence ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS mine ON evidence;

CREATE POLICY mine ON evidence USING ({mine});
