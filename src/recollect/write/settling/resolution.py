"""What settling comes to: changes for the ledger, a decision for each thing learned, and what is left to an LLM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from recollect.model.change import Add, Change, Supersede, Update
from recollect.model.learned import Learned
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Level, Scope
from recollect.write.settling.same import SameLimits

if TYPE_CHECKING:
    from recollect.model.change import Vector


class Did(StrEnum):
    """What became of something learned."""

    ADDED = "added"
    MERGED = "merged"
    SUPERSEDED = "superseded"
    FORGOT = "forgot"
    KNOWN = "known"
    IGNORED = "ignored"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A memory near to something learned, and how near in meaning, from 0 to 1."""

    record: MemoryRecord
    similarity: float


@dataclass(frozen=True, slots=True)
class Undecided:
    """Something learned that rules cannot settle, with the memories it may have to do with, the nearest first."""

    learned: Learned
    neighbours: tuple[Neighbour, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of something learned, why, and which memory it concerns."""

    learned: Learned
    did: Did
    reason: str
    memory_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where the lines are drawn.

    From `near` on a memory is worth asking about, at most `neighbours` of them. `raises` is what being said again
    adds to importance. `forgets` is how many memories one batch may forget. What is new lives in its session if
    `in_session` says so, else where things learned belong.
    """

    same: SameLimits = field(default_factory=SameLimits)
    near: float = 0.6
    neighbours: int = 10
    raises: float = 0.1
    forgets: int = 3
    in_session: bool = False
    max_tokens: int = 2_000
    timeout_s: float = 60.0


def level_of(scope: Scope, limits: Limits) -> Level:
    """Where what is learned from here lives."""
    return Level.SESSION if limits.in_session and scope.session else scope.natural_level


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """Changes to apply together, in order; a decision for each thing learned; what is open; what asking cost."""

    changes: tuple[Change, ...] = ()
    decisions: tuple[Decision, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    model: str = ""
    prompt_digest: str = ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Each decision in words."""
        return tuple(f"{each.did}, {each.reason}: {each.learned.content[:100]}" for each in self.decisions)

    @property
    def unembedded(self) -> tuple[str, ...]:
        """The texts that the changes bring in and that need vectors, in order."""
        return tuple(text for change in self.changes if (text := new_text(change)) is not None)

    def with_vectors(self, vectors: Sequence[Vector | None]) -> Resolution:
        """The same with a vector for each of `unembedded`."""
        given = iter(vectors)
        changes = (change if new_text(change) is None else _embedded(change, next(given)) for change in self.changes)
        return replace(self, changes=tuple(changes))


def new_text(change: Change) -> str | None:
    """The text that a change brings in without a vector."""
    if isinstance(change, (Add, Supersede)):
        return change.record.content if change.vector is None else None
    if isinstance(change, Update) and "content" in change.fields and change.vector is None:
        return str(change.fields["content"])
    return None


def _embedded(change: Change, vector: Vector | None) -> Change:
    return replace(change, vector=vector) if isinstance(change, (Add, Supersede, Update)) else change
