"""Memory for other frameworks: one file each, an extra each, imported only by who uses it."""
