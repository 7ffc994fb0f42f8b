INSERT OR IGNORE INTO evidence (user_id, source_id, row)
    SELECT m.user_id, e.value, m.row FROM memories m, json_each(m.body, '$.evidence') e;
