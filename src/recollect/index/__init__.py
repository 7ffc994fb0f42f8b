"""Finding the nearest vectors; everything here can be rebuilt from the ledger at any time."""
