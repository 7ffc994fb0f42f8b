"""Learning without a language model: plain statements of the user, found by rules and language packs."""
