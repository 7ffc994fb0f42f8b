"""Coding agents: the formats of their hooks and transcripts, the hook command, and the installers."""
