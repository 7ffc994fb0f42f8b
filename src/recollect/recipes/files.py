"""Read text files, and write results completely or not at all."""

from __future__ import annotations

import lzma
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from recollect.errors import InvalidInput


def read_text(path: Path, *, shape: str) -> str:
    """Return the text of a file, decompressed if its name ends in .xz; errors describe the expected `shape`."""
    try:
        if path.suffix == ".xz":
            with lzma.open(path, "rt", encoding="utf-8-sig") as file:
                return file.read()
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text (byte {error.start}); it should be {shape}") from None
    except (lzma.LZMAError, EOFError) as error:
        raise InvalidInput(f"{path} cannot be decompressed: {error}; it should be {shape}") from None
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}; it should be {shape}") from None


def check_folder(path: Path) -> None:
    """Raise an InvalidInput if a file cannot be written there, before the work begins."""
    if not path.parent.is_dir():
        raise InvalidInput(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise InvalidInput(f"cannot write {path}: it is a folder")


@contextmanager
def new_file(path: Path) -> Iterator[TextIO]:
    """Open a file that replaces the one at `path` only if it is written completely."""
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8") as out:
            yield out
        return
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as out:
            yield out
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
