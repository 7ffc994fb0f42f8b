"""A memory as it is stored, and when it is valid."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any

from recollect.aio.erasable_cache import erasable_cache
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.scope import Level, Scope
from recollect.model.text import split_long_text


class MemoryType(StrEnum):
    """The kind of knowledge."""

    SEMANTIC = "semantic"
    PROCEDURAL = "procedural"
    EPISODIC = "episodic"
    REFLECTIVE = "reflective"


class Category(StrEnum):
    """The subject of a memory."""

    FACT = "fact"
    PREFERENCE = "preference"
    INSIGHT = "insight"
    IDENTITY = "identity"
    CONSTRAINT = "constraint"
    INSTRUCTION = "instruction"
    EVENT = "event"
    TURN = "turn"
    SUMMARY = "summary"
    EPISODE = "episode"
    LESSON = "lesson"
    FILE = "file"


class Status(StrEnum):
    """Only active memories are recalled; the others stay in history and can be restored."""

    ACTIVE = "active"
    SUPERSEDED = "superseded"
    REVIEW = "review"
    FORGOTTEN = "forgotten"


class Trust(StrEnum):
    """How far a text can be trusted: the user's own, an assistant's, or a third party's."""

    HIGH = "high"
    LOW = "low"
    NONE = "none"


# The name in the detail of a memory in review of its proposer, who cannot approve it.
PROPOSED_BY = "proposed_by"
# The name in the detail of the LLM that wrote a memory; absent if no LLM did.
MODEL = "model"
# The name in the metadata of an answer that only quotes memories: it is in the transcript, and never found.
QUOTES_MEMORY = "quotes_memory"
# The default type of a category.
TYPE_OF_CATEGORY: Mapping[Category, MemoryType] = {
    Category.EVENT: MemoryType.EPISODIC,
    Category.TURN: MemoryType.EPISODIC,
    Category.SUMMARY: MemoryType.EPISODIC,
    Category.EPISODE: MemoryType.EPISODIC,
    Category.INSTRUCTION: MemoryType.PROCEDURAL,
    Category.LESSON: MemoryType.REFLECTIVE,
}


@frozen_dataclass(kw_only=True)
class MemoryRecord:
    """One memory: its text, its owner, its confidence, its source and its status."""

    id: str
    scope: Scope
    level: Level
    type: MemoryType
    category: Category
    content: str
    created_at: datetime
    updated_at: datetime
    key: str | None = None
    value: str | None = None
    importance: float = 0.5
    confidence: float = 1.0
    source: str = ""
    trust: Trust = Trust.HIGH
    evidence: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)
    occurred_at: datetime | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    expires_at: datetime | None = None
    last_accessed_at: datetime | None = None
    access_count: int = 0
    superseded_by: str | None = None
    status: Status = Status.ACTIVE
    prompt_digest: str | None = None
    version: int = 1

    @property
    def memory(self) -> str:
        """The text of the memory; an alias of `content`, by the name that results have."""
        return self.content

    @property
    def stated_at(self) -> datetime:
        """When it was said; of a summary, the time of the conversation it covers."""
        if self.category in (Category.SUMMARY, Category.EPISODE) and self.occurred_at is not None:
            return self.occurred_at
        return self.created_at

    @property
    def event_at(self) -> datetime | None:
        """When it happened, if that is another day than the one on which it was said."""
        at = self.occurred_at
        return at if at is not None and at.date() != self.stated_at.date() else None

    @property
    def is_rule(self) -> bool:
        """Whether it is a constraint or an instruction that holds until further notice, as an allergy does."""
        return self.category in (Category.CONSTRAINT, Category.INSTRUCTION) and self.occurred_at is None

    @property
    def visibility_key(self) -> str:
        """Where it is visible, as one text; see `Scope.visibility_key`."""
        return self.scope.visibility_key(self.level)

    @property
    def fingerprint(self) -> str | None:
        """The digest by which duplicates with the same visibility are detected.

        None for turns and files, and for episodes of a range of turns: two ranges may have the same summary.
        """
        if self.category in (Category.TURN, Category.FILE):
            return None
        if self.category is Category.EPISODE and "turn_start" in self.detail:
            return None
        # No stored text has a NUL, so that the parts are unambiguous.
        return text_hash(f"{self.category} \0 {self.key or ''} \0 {self.value or ''} \0 {self.content}")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: times as ISO 8601, the scope as three ids."""
        plain: dict[str, Any] = {"id": self.id, "memory": self.content, **self.scope.to_dict()}
        for name in _PLAIN_FIELDS:
            value = getattr(self, name)
            if isinstance(value, datetime):
                value = value.isoformat()
            plain[name] = str(value) if isinstance(value, StrEnum) else value
        for name in ("evidence", "tags"):
            plain[name] = list(getattr(self, name))
        plain["metadata"], plain["detail"] = dict(self.metadata), dict(self.detail)
        return plain


_SEPARATE_FIELDS = {"id", "scope", "content", "evidence", "tags", "metadata", "detail"}
_PLAIN_FIELDS = tuple(name for name in MemoryRecord.__dataclass_fields__ if name not in _SEPARATE_FIELDS)


# A write asks several times for the digest of the same text; of long ones few are cached.
_LONG_CHARS = 10_000


def text_hash(text: str) -> str:
    """Return a digest that ignores case, Unicode form and spacing."""
    return _short_hash(text) if len(text) <= _LONG_CHARS else _long_hash(text)


@erasable_cache(256)
def _short_hash(text: str) -> str:
    return _hash(text)


@erasable_cache(4)
def _long_hash(text: str) -> str:
    return _hash(text)


def _hash(text: str) -> str:
    if text.isascii() and len(text) <= _LONG_CHARS:
        return hashlib.blake2b(" ".join(text.lower().split()).encode(), digest_size=16).hexdigest()
    digest, is_empty, has_space = hashlib.blake2b(digest_size=16), True, False
    for piece in split_long_text(text):
        plain = unicodedata.normalize("NFKC", piece).casefold()
        if words := plain.split():
            has_space = has_space or plain[0].isspace()
            digest.update(f"{' ' * (has_space and not is_empty)}{' '.join(words)}".encode())
            is_empty, has_space = False, False
        has_space = has_space or plain[-1:].isspace()
    return digest.hexdigest()


# Forgotten memories, and those in review, are valid at no moment; history tells their earlier state.
EFFECTIVE_STATUSES = (Status.ACTIVE, Status.SUPERSEDED)


def is_valid_now(record: MemoryRecord, moment: datetime) -> bool:
    """Return whether recall may find the memory at this moment: active, begun, and not ended or expired."""
    return (
        record.status is Status.ACTIVE
        and (record.valid_from is None or record.valid_from <= moment)
        and (record.valid_to is None or record.valid_to > moment)
        and (record.expires_at is None or record.expires_at > moment)
    )


def valid_at(record: MemoryRecord, moment: datetime) -> bool:
    """Return whether the memory was valid at that moment, by its present fields.

    It begins at `valid_from`, or when it was created; it ends at `valid_to`, or when it was superseded, or when it
    expires. The first instant is included, the last is not. `occurred_at` does not matter: that Ann moved in 2019 was
    not known before it was said.
    """
    if record.status not in EFFECTIVE_STATUSES or (record.valid_from or record.created_at) > moment:
        return False
    ended = record.valid_to
    if ended is None and record.status is Status.SUPERSEDED:
        # Superseding sets `valid_to`; where only the status was set, the last update is the best estimate.
        ended = record.updated_at
    return (ended is None or ended > moment) and (record.expires_at is None or record.expires_at > moment)
