"""The ledger in SQL: one body for every database, its dialects in small files."""
