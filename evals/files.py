"""Read datasets and write results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from recollect.errors import InvalidInput
from recollect.recipes.files import check_folder, new_file, read_text

FORMAT = "recollect evaluation 1"
# Every result begins so; other files are not overwritten.
_BEGINNING = json.dumps({"format": FORMAT})[:-1]


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
    check_folder(path)
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            if file.read(len(_BEGINNING)) != _BEGINNING.encode():
                raise InvalidInput(f"{path} exists and is not a result of recollect eval; name another file")


def write_result(path: Path, document: dict[str, Any]) -> None:
    """Write a result, which begins with its format, completely or not at all."""
    check_writable(path)
    with new_file(path) as out:
        json.dump(document, out, ensure_ascii=False)
        out.write("\n")


def read_result(path: Path) -> dict[str, Any]:
    """Return a result that `write_result` wrote."""
    shape = "a file that recollect eval locomo, longmemeval, beam or realtalk wrote with --json FILE"
    document = read_json(path, shape=shape)
    if not isinstance(document, dict) or document.get("format") != FORMAT or "questions" not in document:
        raise InvalidInput(f"{path} holds no measured questions; it should be {shape}")
    return document
