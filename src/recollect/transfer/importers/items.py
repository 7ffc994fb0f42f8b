"""What a reader gives of a source, one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from recollect.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recollect.transfer.importers.source import ImportSource


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


# How many of those left out are named one by one.
MAX_NAMED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Whose it becomes, and what is done with it.

    All becomes `user`'s, or stays under the names the source gives: those in `of`, or `everyone`'s. Nobody else's is
    brought in. `learn` has sessions learned from afterwards; without it they are kept and found, and cost nothing.
    """

    user: str | None = None
    of: frozenset[str] = frozenset()
    everyone: bool = False
    project: str | None = None
    learn: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.user is not None and self.everyone:
            raise InvalidInput("give either a user whose all of it becomes, or everyone's, not both")

    def owner(self, named: str | None) -> str:
        """Whose a thing becomes that the source says is `named`'s; an InvalidInput if it may be nobody's."""
        if self.of and named is not None and named not in self.of:
            raise InvalidInput(f"it is of user {named!r}, who was not asked for")
        if self.user is not None:
            return self.user
        if named is None:
            raise InvalidInput("the source does not say whose it is: name the user it becomes")
        if not self.everyone and named not in self.of:
            raise InvalidInput(f"it is of user {named!r}, who was not asked for")
        return named


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What came of it: of what kind the source was and why it was thought so, how much of it is new.

    `left` counts by reason what was left out, and `named` names the first of them. A dry run tells the same and
    writes nothing.
    """

    kind: str
    why: str = ""
    memories: int = 0
    turns: int = 0
    sessions: int = 0
    added: int = 0
    present: int = 0
    kept: int = 0
    redacted: int = 0
    users: tuple[str, ...] = ()
    left: Mapping[str, int] = field(default_factory=dict)
    named: tuple[SkippedItem, ...] = ()
    refused: int = 0
    dry_run: bool = False
    learning: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__ if name != "named"}
        values["users"], values["left"] = list(self.users), dict(self.left)
        values["named"] = [{"where": each.where, "why": each.why} for each in self.named]
        return values
