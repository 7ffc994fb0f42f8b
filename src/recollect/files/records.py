"""Paths of files: what a model writes, brought to the one form by which a file is known.

Nothing here touches a file system: `..` is worked out on the text, and no escape (`%2e`) is read as what it may mean
elsewhere.
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
# A name of a file may have 255 bytes on most systems, and a mirror may add some.
MAX_NAME_BYTES = 200
_ROOT_NAME = ROOT[1:]


def parse_path(path: str) -> str:
    """The path as files are known by it, or a ToolFailed that says what is wrong with it."""
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise ToolFailed(f"Path must start with /memories, got: {path}")
    plain = unicodedata.normalize("NFC", normalise_invisible(path))
    if "\\" in plain:
        raise ToolFailed(f"Path {path} holds a backslash; folders are parted by /")
    parts = _resolve(plain)
    if parts[:1] != [_ROOT_NAME]:
        raise ToolFailed(f"Path {path} would escape /memories directory")
    return check_path("/" + "/".join(parts), original=path)


def check_path(path: str, *, original: str) -> str:
    """The path, or a ToolFailed if no file can have it; `said` is how the model wrote it."""
    parts = path.split("/")[2:]
    if len(parts) > MAX_PATH_PARTS:
        raise ToolFailed(f"Path {original} is {len(parts)} levels deep; the limit is {MAX_PATH_PARTS}")
    if any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        raise ToolFailed(f"Path {original} holds a name of more than {MAX_NAME_BYTES} bytes")
    try:
        return validate_id(path, name="path")
    except InvalidInput as error:
        raise ToolFailed(f"Path {original} cannot be used: {error}") from None


def _resolve(path: str) -> list[str]:
    """The parts of a path without `.` and `..`; none once it has led above the folder that holds /memories."""
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
    """The folders that a path lies in, without /memories itself."""
    parts = path.split("/")
    return tuple("/".join(parts[:count]) for count in range(3, len(parts)))


# Below what recall gives whatever the question: a file is to be found, or to be looked at with the tool.
IMPORTANCE = 0.4
# A memory says something; a file need not, and then its text is in the detail.
EMPTY = "(empty file)"
_TEXT = "text"


def file_text(record: MemoryRecord) -> str:
    """The text of a file."""
    text = record.detail.get(_TEXT)
    # Whoever else changes a memory changes its content alone.
    return text if isinstance(text, str) and record.content == EMPTY else record.content


def file_fields(text: str, detail: Mapping[str, Any], *, by: Author) -> dict[str, Any]:
    """The fields of a memory that hold the text; the words are as good as whoever wrote them."""
    rest = {name: value for name, value in detail.items() if name != _TEXT}
    blank = not text.strip()
    return {
        "content": EMPTY if blank else text,
        "detail": {**rest, _TEXT: text} if blank else rest,
        "trust": Trust.HIGH if by.actor is Actor.PERSON else Trust.LOW,
    }


def new_file_record(scope: Scope, path: str, text: str, *, by: Author) -> MemoryRecord:
    """The memory that a new file is."""
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
