"""Memories as Markdown files that a person can read, edit, delete and version: a two-way mirror of the ledger."""
