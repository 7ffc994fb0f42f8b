"""What settling comes to: changes for the ledger, a decision for each thing learned, and what is left to an LLM."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from recollect.model.change import Change
from recollect.model.learned import Learned
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Level, Scope
from recollect.write.settling.same import SameLimits


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
