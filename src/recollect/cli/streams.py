"""The text a command works on: its words on the command line, or what is piped in."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click

from recollect.errors import InvalidText
from recollect.model.text import MAX_TEXT_BYTES


def read_text_argument(words: Sequence[str], *, name: str) -> str:
    """The words joined by spaces; for none of them, or "-", the whole of standard input without its last newline."""
    if words and tuple(words) != ("-",):
        return " ".join(words)
    if sys.stdin is None or (not words and sys.stdin.isatty()):
        raise click.UsageError(f"Give the {name} as words, or pipe it in.")
    # What is refused for its length need not be read to its end; there may be none.
    data = sys.stdin.buffer.read(MAX_TEXT_BYTES + 3)
    if len(data.rstrip(b"\r\n")) > MAX_TEXT_BYTES:
        raise InvalidText(f"{name} is longer than {MAX_TEXT_BYTES:,} bytes, which is the limit: split it into parts")
    try:
        return data.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise InvalidText(
            f"standard input is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}"
        ) from None


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
