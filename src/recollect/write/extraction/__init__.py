"""Learning with an LLM: one structured question, and every claim held against what was said."""
