"""What a reader gives of a source, one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recollect.movein.source import ImportSource

Timestamp: TypeAlias = datetime | str | float


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """A memory, or a turn if it has a role: its id and its user are those it has in the source.

    `fields` are those of a memory, `cites` the ids of the turns of its session that it was learned from. `where`
    tells a person where in the source it stands.
    """

    id: str
    text: str
    where: str
    at: Timestamp | None = None
    user: str | None = None
    project: str | None = None
    session: str | None = None
    role: str | None = None
    name: str | None = None
    cites: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSession:
    """What is told of a session besides its turns, after the last of them."""

    session: str
    user: str | None = None
    project: str | None = None
    title: str = ""
    summary: str = ""


@dataclass(frozen=True, slots=True)
class SkippedItem:
    """Something that is not brought in, and why."""

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class ExportLine:
    """A line of an export of ours, which says all of a memory itself."""

    data: Any
    where: str


SourceItem: TypeAlias = SourceRecord | SourceSession | SkippedItem | ExportLine


class Importer(Protocol):
    """How one product's memory is recognised and read; a module of this package."""

    def recognise(self, source: ImportSource) -> str:
        """By what the source is known to be of this product; empty if it is not."""
        ...

    def read(self, source: ImportSource) -> Iterator[SourceItem]:
        """Everything in it."""
        ...


def extract_text(content: Any) -> str:
    """The words of a message's content: a text, or parts of which some are texts."""
    if isinstance(content, str):
        return content.strip()
    if isinstance(content, Mapping):
        content = content.get("parts") or content.get("text") or ""
        return extract_text(content)
    if not isinstance(content, list):
        return ""
    words = [each if isinstance(each, str) else _part_text(each) for each in content]
    return "\n".join(filter(None, (word.strip() for word in words)))


def _part_text(part: Any) -> str:
    if not isinstance(part, Mapping) or part.get("type", "text") not in ("text", "input_text", "output_text"):
        return ""
    text = part.get("text")
    return text if isinstance(text, str) else ""
