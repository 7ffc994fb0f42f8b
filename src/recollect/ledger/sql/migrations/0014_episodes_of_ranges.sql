-- Two ranges of turns may have the same summary: their episodes are told apart by their ids, not by their texts.
UPDATE memories SET fingerprint = NULL WHERE category = 'episode' AND body LIKE '%"turn_start"%';
