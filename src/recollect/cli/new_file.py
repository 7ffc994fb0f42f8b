"""A file that a command writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click


@contextmanager
def open_new_file(path: Path, *, force: bool) -> Iterator[TextIO]:
    """A file that is there whole when all went well, and not at all when it did not; only its owner may read it."""
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8") as out:
            yield out
        return
    if path.exists() and not force:
        raise click.UsageError(f"{path} is there already; --force replaces it.", click.get_current_context())
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
