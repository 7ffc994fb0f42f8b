"""Files under /memories, written by a model with a memory tool: each is a memory with its path as key."""
