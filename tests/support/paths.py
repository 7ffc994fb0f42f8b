"""Folders of the repository, for tests that read its files."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
