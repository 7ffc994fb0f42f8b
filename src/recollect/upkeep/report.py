"""What a run of upkeep did, or would do: one shape for every chore."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from recollect.errors import InvalidInput
from recollect.model.change import ChangeKind
from recollect.model.effect import ModelUsage
from recollect.model.memory import MemoryRecord


class MaintenanceTask(StrEnum):
    """What upkeep can be asked to do."""

    EXPIRE = "expire"
    QUOTA = "quota"
    PRUNE = "prune"
    CONSOLIDATE = "consolidate"
    REFLECT = "reflect"


def parse_tasks(names: Sequence[str]) -> list[MaintenanceTask]:
    """The chores of these names, or an InvalidInput that says which there are."""
    try:
        return [MaintenanceTask(name) for name in names]
    except ValueError:
        wrong = next(name for name in names if name not in tuple(MaintenanceTask))
        raise InvalidInput(f"there is no chore {wrong!r}; there are {', '.join(MaintenanceTask)}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceStep:
    """One memory that was brought in, changed or forgotten, and why; `sources` are those it took the place of."""

    verb: ChangeKind
    id: str
    content: str
    why: str = ""
    sources: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "verb": str(self.verb),
            "id": self.id,
            "memory": self.content,
            "why": self.why,
            "sources": list(self.sources),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """What one chore did for one user; in a dry run what it would have done.

    All of it is one batch of history, to be undone as one. `left` says what was left alone and why, `more` that there
    was more to do than one run does, and `stale` names insights that rest on what is no longer remembered.
    """

    chore: MaintenanceTask
    user: str
    dry_run: bool = False
    batch: str | None = None
    steps: tuple[MaintenanceStep, ...] = ()
    left: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    looked_at: int = 0
    more: bool = False
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "chore": str(self.chore),
            "user_id": self.user,
            "dry_run": self.dry_run,
            "batch": self.batch,
            "steps": [step.to_dict() for step in self.steps],
            "left": list(self.left),
            "stale": list(self.stale),
            "looked_at": self.looked_at,
            "more": self.more,
            "calls": self.calls,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
        }


def forget_steps(records: Sequence[MemoryRecord], why: str) -> tuple[MaintenanceStep, ...]:
    """The steps of memories that were forgotten for one reason."""
    return tuple(
        MaintenanceStep(verb=ChangeKind.FORGET, id=each.id, content=each.content, why=why) for each in records
    )


@dataclass(slots=True)
class LlmCostTally:
    """What models were asked in a run: all of it for the report, and what is not yet in the ledger."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    _unrecorded: list[ModelUsage] = field(default_factory=list)

    def add(self, spent: ModelUsage) -> None:
        """Note what was spent."""
        self.calls += spent.calls
        self.tokens_in += spent.tokens_in
        self.tokens_out += spent.tokens_out
        self._unrecorded.append(spent)

    def unrecorded(self) -> tuple[ModelUsage, ...]:
        """What is not yet in the ledger, and goes there with the next write."""
        return tuple(self._unrecorded)

    def mark_recorded(self) -> None:
        """Say that the ledger has all of it."""
        self._unrecorded.clear()


def llm_cost(user: str, step: MaintenanceTask, model: str, answer: Any, *, at: datetime) -> ModelUsage:
    """What an answer of a model cost, or one that could not be used."""
    return ModelUsage(
        user=user,
        step=str(step),
        model=model,
        calls=answer.calls,
        tokens_in=answer.tokens_in,
        tokens_out=answer.tokens_out,
        at=at,
    )
