"""What a run of upkeep did, or would do: one shape for every chore."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from recollect.errors import Conflict, InvalidInput, NotFound
from recollect.ledger.jobs import MAINTENANCE_AUTHOR
from recollect.ledger.protocol import Ledger
from recollect.model.change import Author, ChangeKind, Effect, Forget, ModelUsage
from recollect.model.ids import new_id
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope
from recollect.model.times import now


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


MAX_CHANGES = 500
# How many memories one transaction forgets at most, so that other writers get their turn.
_CHUNK = 200
_MAX_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceRun:
    """Who runs a chore, at what time, and how many memories it may change at most.

    A dry run changes no memory. The `effects`, such as the end of the job it is, come with the last write of the run,
    dry or not. `progress` is told how much is done. What was written `since` then is what the run was asked for.
    """

    by: Author = field(default_factory=lambda: Author(MAINTENANCE_AUTHOR, batch=new_id()))
    at: datetime = field(default_factory=now)
    since: datetime | None = None
    max_changes: int = MAX_CHANGES
    dry_run: bool = False
    effects: tuple[Effect, ...] = ()
    progress: Callable[[int], None] = lambda done: None

    def __post_init__(self) -> None:
        if self.max_changes < 1:
            raise InvalidInput(f"a run of upkeep does at least one thing, not {self.max_changes}")
        if self.by.batch is None:
            # All writes of a run are one batch, so that one undo takes back all of it.
            object.__setattr__(self, "by", replace(self.by, batch=new_id()))

    def author_for(self, why: str) -> Author:
        """Who writes, with the reason of this write unless a better one was given."""
        return replace(self.by, why=self.by.why or why)

    def batch(self, changed: bool) -> str | None:
        """What to undo, if anything was written."""
        return self.by.batch if changed and not self.dry_run else None


async def forget(
    scope: Scope, records: Sequence[MemoryRecord], *, why: str, run: MaintenanceRun, ledger: Ledger
) -> tuple[list[MemoryRecord], list[str]]:
    """Forget memories as they were read, in one batch; gives those, and why others were left.

    What someone changed in the meantime is left alone: it is another memory now than the one that was judged.
    """
    if run.dry_run:
        return list(records), []
    done: list[MemoryRecord] = []
    left: list[str] = []
    for start in range(0, len(records), _CHUNK):
        chunk, changed = await _forget_unchanged(scope, records[start : start + _CHUNK], why, run, ledger)
        done += chunk
        left += changed
        run.progress(len(done))
    return done, left


async def _forget_unchanged(
    scope: Scope, records: Sequence[MemoryRecord], why: str, run: MaintenanceRun, ledger: Ledger
) -> tuple[list[MemoryRecord], list[str]]:
    chunk, left = list(records), list[str]()
    for _ in range(_MAX_TRIES):
        try:
            if chunk:
                changes = [Forget(each.id, each.version) for each in chunk]
                await ledger.apply(scope, changes, by=run.author_for(why))
            return chunk, left
        except (Conflict, NotFound):
            current = {each.id: each.version for each in await ledger.get(scope, [each.id for each in chunk])}
            left += [f"{each.id} was changed meanwhile" for each in chunk if current.get(each.id) != each.version]
            chunk = [each for each in chunk if current.get(each.id) == each.version]
    return [], [*left, f"{len(chunk)} memories kept changing"]


async def finish(scope: Scope, run: MaintenanceRun, ledger: Ledger, *effects: Effect) -> None:
    """Let the effects of the run take place, if there are any."""
    if run.effects or effects:
        await ledger.apply(scope, [], by=run.by, effects=[*effects, *run.effects])
