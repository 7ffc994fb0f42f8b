"""Language-level helpers shared by reading and writing."""
