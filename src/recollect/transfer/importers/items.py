"""The importers, the values that they yield, and the options and the report of an import."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from recollect.errors import InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.plain import PlainValue

if TYPE_CHECKING:
    from recollect.transfer.importers.source import ImportSource


Timestamp: TypeAlias = datetime | str | float
MAX_NAMED = 1000


@frozen_dataclass(kw_only=True)
class SourceRecord:
    """A memory, or a turn if it has a role, with the id and the user of the source.

    `fields` are fields of a memory, `cites` the ids of the turns it was learned from. `where` is its place in the
    source, for messages.
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


@frozen_dataclass(kw_only=True)
class SourceSession:
    """The title and summary of a session, yielded after its turns."""

    session: str
    user: str | None = None
    project: str | None = None
    title: str = ""
    summary: str = ""


@frozen_dataclass
class SkippedItem(PlainValue):
    """Something that is not imported, and the reason."""

    where: str
    why: str


@frozen_dataclass
class ExportLine:
    """A line of a Recollect export."""

    data: Any
    where: str


SourceItem: TypeAlias = SourceRecord | SourceSession | SkippedItem | ExportLine


class Importer(Protocol):
    """A module of this package that reads the memories of one product."""

    def recognise(self, source: ImportSource) -> str:
        """Return the evidence that the source is of this product; empty if it is not."""

    def read(self, source: ImportSource) -> Iterator[SourceItem]:
        """Yield everything in the source."""


def extract_text(content: Any) -> str:
    """Return the text of a message's content: a string, or a list with text parts."""
    if isinstance(content, str):
        return content.strip()
    if isinstance(content, Mapping):
        return extract_text(content.get("parts") or content.get("text") or "")
    if not isinstance(content, list):
        return ""
    texts = [each if isinstance(each, str) else _part_text(each) for each in content]
    return "\n".join(filter(None, (text.strip() for text in texts)))


def _part_text(part: Any) -> str:
    if not isinstance(part, Mapping) or part.get("type", "text") not in ("text", "input_text", "output_text"):
        return ""
    text = part.get("text")
    return text if isinstance(text, str) else ""


def optional_text(value: Any) -> str | None:
    """Return the value as text; None if it is empty."""
    return str(value) if value else None


SPEAKERS = {"user": "user", "human": "user", "assistant": "assistant", "ai": "assistant"}


def read_turn(role: Any, text: str, *, where: str, **fields: Any) -> SourceRecord | SkippedItem:
    """Return a message of the user or the assistant as a turn, or why it is skipped."""
    speaker = SPEAKERS.get(str(role).lower())
    if speaker is None:
        return SkippedItem(where, f"messages of role {role} are not imported")
    if not text:
        return SkippedItem(where, "a message without text")
    return SourceRecord(text=text, where=where, role=speaker, **fields)


def skipped_counts(where: str, counts: Mapping[str, int]) -> Iterator[SkippedItem]:
    """Yield one item for each reason, with its count."""
    for why, count in counts.items():
        yield SkippedItem(where, f"{why} ({count})" if count > 1 else why)


@frozen_dataclass(kw_only=True)
class ImportOptions:
    """The owner of the imported records, and what is done with them.

    All records become `user`'s, or keep the users of the source: those in `of`, or `everyone`. Records of other users
    are skipped. With `learn`, memories are extracted from the imported sessions in the background.
    """

    user: str | None = None
    of: frozenset[str] = frozenset()
    everyone: bool = False
    project: str | None = None
    learn: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.user is not None and self.everyone:
            raise InvalidInput("give either a user for all records, or everyone, not both")

    def owner(self, named: str | None) -> str:
        """Return the new owner of a record of the user `named`; raise an InvalidInput if it is not imported."""
        if named is not None and ((self.of and named not in self.of) or not (self.of or self.user or self.everyone)):
            raise InvalidInput(f"it is of user {named!r}, who was not selected")
        if self.user is not None:
            return self.user
        if named is None:
            raise InvalidInput("the source does not name its user: name the user it becomes")
        return named


@frozen_dataclass(kw_only=True)
class ImportReport(PlainValue):
    """The result of an import, or of a dry run.

    `why` is the evidence for the `kind` of the source. `left` counts the skipped items by reason, `named` lists the
    first of them, `refused` counts those that are invalid or exceed the quota.
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


# In the order they are tried: distinctive formats first, plain text last.
IMPORTERS = (
    "mem0", "agent-cli", "langgraph", "letta", "chatgpt", "claude", "claude-code", "codex", "gemini", "cursor", "zep",
    "recollect", "markdown",
)  # fmt: skip
# Where coding agents keep their transcripts.
TRANSCRIPT_FOLDERS = {
    "claude-code": "~/.claude/projects",
    "codex": "~/.codex/sessions",
    "gemini": "~/.gemini/tmp",
    "cursor": "~/.cursor/projects",
}
_POSTGRES_KINDS = ("mem0", "langgraph")


def load_importer(kind: str, source: ImportSource) -> Importer:
    """Import the importer of a product; raise InvalidInput if there is none, or it cannot read such a source."""
    if kind not in IMPORTERS:
        raise InvalidInput(f"unknown product {kind!r}; the known ones are {', '.join(IMPORTERS)}")
    if source.is_database and kind not in _POSTGRES_KINDS:
        raise InvalidInput(f"{kind} does not use PostgreSQL; {' and '.join(_POSTGRES_KINDS)} do")
    if kind in TRANSCRIPT_FOLDERS:
        from recollect.transfer.importers.coding_agents import TRANSCRIPT_IMPORTERS

        return TRANSCRIPT_IMPORTERS[kind]
    return import_module(f"recollect.transfer.importers.{kind.replace('-', '_')}")


def recognise_source(source: ImportSource) -> tuple[str, str]:
    """Return the product of a source, and the evidence for it."""
    if source.is_database:
        reasons = {kind: why for kind in _POSTGRES_KINDS if (why := load_importer(kind, source).recognise(source))}
        if not reasons:
            products = " or ".join(_POSTGRES_KINDS)
            raise InvalidInput(f"{source.display_name} has no tables of {products}: is it the right database?")
        if len(reasons) > 1:
            raise InvalidInput(f"{source.display_name} has tables of {' and of '.join(reasons)}: choose one")
        return next(iter(reasons.items()))
    for kind in IMPORTERS:
        if why := load_importer(kind, source).recognise(source):
            return kind, why
    raise InvalidInput(f"{source.display_name} is not recognised; name its product: {', '.join(IMPORTERS)}")
