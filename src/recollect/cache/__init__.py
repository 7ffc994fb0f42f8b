"""What server processes share through Redis, where there is one: answers found before, limits."""
