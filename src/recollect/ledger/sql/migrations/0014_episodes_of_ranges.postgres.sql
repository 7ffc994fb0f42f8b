-- The vector of a memory, of the model that is searched; pgvector casts it to its own type.
CREATE OR REPLACE FUNCTION recollect_embedding(owner text, memory_row bigint) RETURNS real[]
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT array_agg((CASE WHEN h.bits >= 32768 THEN -1 ELSE 1 END
        * CASE WHEN (h.bits >> 10) & 31 = 0 THEN (h.bits & 1023) * 2.0 ^ -24
            ELSE ((h.bits & 1023) + 1024) * 2.0 ^ (((h.bits >> 10) & 31) - 25) END)::real ORDER BY n)
    FROM vectors v JOIN current_model c ON c.model = v.model
        CROSS JOIN LATERAL generate_series(0, length(v.vector) / 2 - 1) n
        CROSS JOIN LATERAL (SELECT get_byte(v.vector, 2 * n) + 256 * get_byte(v.vector, 2 * n + 1) AS bits) h
    WHERE v.user_id = owner AND v.row = memory_row
$$;

-- Episodes and keyed facts, as tables to read. Row-level security is that of whoever reads them, which PostgreSQL 14
-- cannot do: it gets none. Nor does a database that has tables of these names.
DO $$ BEGIN
    IF current_setting('server_version_num')::int >= 150000 THEN
        IF to_regclass('episodic_memory') IS NULL THEN CREATE VIEW episodic_memory WITH (security_invoker = true) AS
            SELECT id, user_id,
                'turns ' || (body::jsonb #>> '{detail,turn_start}') || '-' || (body::jsonb #>> '{detail,turn_end}')
                    AS turn_range,
                content AS summary,
                recollect_embedding(user_id, row) AS embedding,
                LEAST(GREATEST((body::jsonb #>> '{detail,turn_start}')::numeric, 0), 2147483647)::int AS turn_start,
                LEAST(GREATEST((body::jsonb #>> '{detail,turn_end}')::numeric, 0), 2147483647)::int AS turn_end,
                to_timestamp(created_at / 1000000.0) AS created_at,
                project_id, session_id
            FROM memories
            WHERE category = 'episode' AND status = 'active' AND body LIKE '%"turn_start"%'
                AND jsonb_typeof(body::jsonb #> '{detail,turn_start}') = 'number'
                AND jsonb_typeof(body::jsonb #> '{detail,turn_end}') = 'number'
        ; END IF
        ; IF to_regclass('structured_facts') IS NULL THEN CREATE VIEW structured_facts WITH (security_invoker = true) AS
            SELECT id, user_id, category, "key", body::jsonb ->> 'value' AS value, confidence, importance,
                status = 'active' AS is_active,
                to_timestamp(created_at / 1000000.0) AS created_at,
                to_timestamp(updated_at / 1000000.0) AS updated_at,
                project_id
            FROM memories
            WHERE "key" IS NOT NULL AND category <> 'file' AND status IN ('active', 'superseded')
        ; END IF
    ; END IF
; END $$;
