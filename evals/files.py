"""Read datasets and write results."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

from recollect.cli.options import open_new_file
from recollect.errors import InvalidInput

FORMAT = "recollect evaluation 1"
# Every result begins so; other files are not overwritten.
_BEGINNING = json.dumps({"format": FORMAT})[:-1]


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


def read_json(path: Path, *, shape: str) -> Any:
    """Return the document of a .json or .json.xz file; errors describe the expected `shape`."""
    try:
        return json.loads(read_text(path, shape=shape))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidInput(f"{path} is not JSON: {error.msg} at {where}; it should be {shape}") from None
    except RecursionError:
        raise InvalidInput(f"{path} is nested too deeply; it should be {shape}") from None


def check_writable(path: Path) -> None:
    """Raise an InvalidInput if a result cannot be written there, or would overwrite something else."""
    if not path.parent.is_dir():
        raise InvalidInput(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise InvalidInput(f"cannot write {path}: it is a folder")
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            if file.read(len(_BEGINNING)) != _BEGINNING.encode():
                raise InvalidInput(f"{path} exists and is not a result of recollect eval; name another file")


def write_result(path: Path, document: dict[str, Any]) -> None:
    """Write a result, which begins with its format, completely or not at all."""
    check_writable(path)
    with open_new_file(path, force=True) as out:
        json.dump(document, out, ensure_ascii=False)
        out.write("\n")


def read_result(path: Path) -> dict[str, Any]:
    """Return a result that `write_result` wrote."""
    shape = "a file that recollect eval locomo, longmemeval, beam or realtalk wrote with --json FILE"
    document = read_json(path, shape=shape)
    if not isinstance(document, dict) or document.get("format") != FORMAT or "questions" not in document:
        raise InvalidInput(f"{path} holds no measured questions; it should be {shape}")
    return document
