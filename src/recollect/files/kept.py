"""A file as a memory: its path is the memory's key, its text the content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.model.change import Actor, Author
from recollect.model.ids import new_id
from recollect.model.memory import Category, MemoryRecord, MemoryType, Trust
from recollect.model.scope import Scope
from recollect.model.times import now

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
