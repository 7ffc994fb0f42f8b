"""The one source of truth: what is kept, transactional, with its history."""
