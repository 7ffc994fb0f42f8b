"""How memories are written into a prompt, one file a style."""
