"""Reading what the user has measured or collected, and writing what was measured."""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from recollect.errors import InvalidInput

FORMAT = "recollect evaluation 1"
# Every result begins so; other files are not written over.
_BEGINNING = json.dumps({"format": FORMAT})[:-1]


def read_json(path: Path, *, shape: str) -> Any:
    """The document in a .json or .json.xz file; `shape` tells in an error what the file should hold."""
    try:
        return json.loads(read_text(path, shape=shape))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidInput(f"{path} is not JSON: {error.msg} at {where}; it should be {shape}") from None
    except RecursionError:
        raise InvalidInput(f"{path} is nested too deeply; it should be {shape}") from None


def read_text(path: Path, *, shape: str) -> str:
    """The text of a file, unpacked if its name ends in .xz."""
    try:
        if path.suffix == ".xz":
            with lzma.open(path, "rt", encoding="utf-8-sig") as file:
                return file.read()
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text (byte {error.start}); it should be {shape}") from None
    except (lzma.LZMAError, EOFError) as error:
        raise InvalidInput(f"{path} cannot be unpacked: {error}; it should be {shape}") from None
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}; it should be {shape}") from None


def check_folder(path: Path) -> None:
    """Say now, not after minutes of work, that no file can be written there."""
    if not path.parent.is_dir():
        raise InvalidInput(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise InvalidInput(f"cannot write {path}: it is a folder")


def check_writable(path: Path) -> None:
    """Say now that a result cannot be written there, or would take the place of something else."""
    check_folder(path)
    if path.is_file() and path.stat().st_size and not _is_result(path):
        raise InvalidInput(f"{path} is there already and is no result of recollect eval; name another file")


def _is_result(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_BEGINNING)) == _BEGINNING.encode()


def write_result(path: Path, document: dict[str, Any]) -> None:
    """Write a result, whole or not at all; it begins with its format."""
    check_writable(path)
    with new_file(path) as out:
        json.dump(document, out, ensure_ascii=False)
        out.write("\n")


def read_result(path: Path) -> dict[str, Any]:
    """Read what `write_result` wrote."""
    shape = "a file that recollect eval locomo, longmemeval, beam or realtalk wrote with --json FILE"
    document = read_json(path, shape=shape)
    if not isinstance(document, dict) or document.get("format") != FORMAT or "questions" not in document:
        raise InvalidInput(f"{path} holds no measured questions; it should be {shape}")
    return document


@contextmanager
def new_file(path: Path) -> Iterator[TextIO]:
    """A file that is there whole when all went well, and as it was when it did not."""
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
