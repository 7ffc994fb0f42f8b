"""Search by vector. Every index can be rebuilt from the ledger at any time."""
