"""Long-term memory for LLM applications and agents."""
