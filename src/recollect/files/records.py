"""Paths of files in their canonical form, and files as memory records.

Nothing here touches a file system: `..` is resolved in the text, and escapes (`%2e`) are not decoded.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

from recollect.errors import InvalidInput, ToolFailed
from recollect.model.change import Actor, Author
from recollect.model.ids import new_id
from recollect.model.memory import Category, MemoryRecord, MemoryType, Trust
from recollect.model.scope import Scope
from recollect.model.text import normalise_invisible, validate_id
from recollect.model.times import now

ROOT = "/memories"
MAX_PATH_PARTS = 10
# File systems allow 255 bytes, and the mirror adds a suffix.
MAX_NAME_BYTES = 200
_ROOT_NAME = ROOT[1:]


def parse_path(path: str) -> str:
    """Return the canonical path; raise a ToolFailed if it is invalid."""
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise ToolFailed(f"Path must start with /memories, got: {path}")
    plain = unicodedata.normalize("NFC", normalise_invisible(path))
    if "\\" in plain:
        raise ToolFailed(f"Path {path} has a backslash; folders are separated by /")
    parts = _resolve(plain)
    if parts[:1] != [_ROOT_NAME]:
        raise ToolFailed(f"Path {path} would escape /memories directory")
    return check_path("/" + "/".join(parts), original=path)


def check_path(path: str, *, original: str) -> str:
    """Return the path; raise a ToolFailed, with the `original` path of the model, if no file can have it."""
    parts = path.split("/")[2:]
    if len(parts) > MAX_PATH_PARTS:
        raise ToolFailed(f"Path {original} is {len(parts)} levels deep; the limit is {MAX_PATH_PARTS}")
    if any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        raise ToolFailed(f"Path {original} has a name of more than {MAX_NAME_BYTES} bytes")
    try:
        return validate_id(path, name="path")
    except InvalidInput as error:
        raise ToolFailed(f"Path {original} cannot be used: {error}") from None


def _resolve(path: str) -> list[str]:
    """Return the parts of a path without `.` and `..`; empty if it leads above the root."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                return []
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return parts


def parents_of(path: str) -> tuple[str, ...]:
    """Return the parent folders of a path, without /memories."""
    parts = path.split("/")
    return tuple("/".join(parts[:count]) for count in range(3, len(parts)))


# Too low to be recalled for every question: files are searched, or viewed with the tool.
IMPORTANCE = 0.4
# The content of a memory cannot be empty; the text of a blank file is in its detail.
EMPTY = "(empty file)"
_TEXT = "text"


def file_text(record: MemoryRecord) -> str:
    """Return the text of a file."""
    text = record.detail.get(_TEXT)
    # Other interfaces change only the content.
    return text if isinstance(text, str) and record.content == EMPTY else record.content


def file_fields(text: str, detail: Mapping[str, Any], *, by: Author) -> dict[str, Any]:
    """Return the fields of a memory for a text; its trust depends on the author."""
    rest = {name: value for name, value in detail.items() if name != _TEXT}
    blank = not text.strip()
    return {
        "content": EMPTY if blank else text,
        "detail": {**rest, _TEXT: text} if blank else rest,
        "trust": Trust.HIGH if by.actor is Actor.PERSON else Trust.LOW,
    }


def new_file_record(scope: Scope, path: str, text: str, *, by: Author) -> MemoryRecord:
    """Return the memory of a new file."""
    at = now()
    return MemoryRecord(
        id=new_id(),
        scope=scope,
        level=scope.default_level,
        type=MemoryType.SEMANTIC,
        category=Category.FILE,
        key=path,
        importance=IMPORTANCE,
        source=by.who,
        created_at=at,
        updated_at=at,
        **file_fields(text, {}, by=by),
    )
