"""Memory for other frameworks: one file and one extra each, imported only when used."""
