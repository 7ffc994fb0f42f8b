"""Files that a model keeps for itself under /memories: each is one memory of its user, told by its path."""
