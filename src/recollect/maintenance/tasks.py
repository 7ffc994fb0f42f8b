"""Maintenance tasks: the run they belong to, the report they return, and the steps they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from recollect.errors import Conflict, InvalidInput, NotFound
from recollect.ledger.ledger import Ledger
from recollect.ledger.types import MAINTENANCE_AUTHOR
from recollect.model.change import Author, ChangeKind, Effect, Forget
from recollect.model.ids import new_id
from recollect.model.memory import MemoryRecord
from recollect.model.plain import plain_fields
from recollect.model.scope import Scope
from recollect.model.times import now

MAX_CHANGES = 500
# The number of memories that one transaction forgets, so that other writers do not wait for long.
_CHUNK = 200
_MAX_TRIES = 3


class MaintenanceTask(StrEnum):
    """The maintenance tasks by name."""

    EXPIRE = "expire"
    QUOTA = "quota"
    PRUNE = "prune"
    CONSOLIDATE = "consolidate"
    REFLECT = "reflect"


def parse_tasks(names: Sequence[str]) -> list[MaintenanceTask]:
    """Return the tasks of these names, or raise InvalidInput with the names that exist."""
    try:
        return [MaintenanceTask(name) for name in names]
    except ValueError:
        wrong = next(name for name in names if name not in tuple(MaintenanceTask))
        raise InvalidInput(f"unknown maintenance task {wrong!r}; use {', '.join(MaintenanceTask)}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceStep:
    """One memory that was added, changed or forgotten, and why; `sources` are the memories it replaces."""

    verb: ChangeKind
    id: str
    content: str
    why: str = ""
    sources: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"memory": self.content, **plain_fields(self, omit=("content",))}


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """The result of one task for one user; of a dry run, the changes that a run would make.

    All steps are one batch of history, undone as one. `left` has the reasons for skipped memories, `more` says that
    one run was not enough, and `stale` names insights whose evidence no longer holds.
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
        return {"user_id": self.user, **plain_fields(self, omit=("user",))}


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceRun:
    """The author, the time and the limits of a run.

    A dry run changes no memory. The `effects`, such as the end of the job, come with the last write of the run, dry
    or not. Memories written after `since` are the reason for the run, so that quotas spare them.
    """

    by: Author = field(default_factory=lambda: Author(MAINTENANCE_AUTHOR, batch=new_id()))
    at: datetime = field(default_factory=now)
    since: datetime | None = None
    max_changes: int = MAX_CHANGES
    dry_run: bool = False
    effects: tuple[Effect, ...] = ()

    def __post_init__(self) -> None:
        if self.max_changes < 1:
            raise InvalidInput(f"`max_changes` must be at least 1, got {self.max_changes}")
        if self.by.batch is None:
            # All writes of a run share a batch, so that one undo reverts all of them.
            object.__setattr__(self, "by", replace(self.by, batch=new_id()))

    def author_for(self, why: str) -> Author:
        """Return the author of a write; its reason is used unless the run has one."""
        return replace(self.by, why=self.by.why or why)

    def report(
        self,
        task: MaintenanceTask,
        scope: Scope,
        steps: Sequence[MaintenanceStep],
        *,
        left: Sequence[str],
        looked_at: int,
        more: bool = False,
    ) -> MaintenanceReport:
        return MaintenanceReport(
            chore=task,
            user=scope.user,
            dry_run=self.dry_run,
            batch=self.by.batch if steps and not self.dry_run else None,
            steps=tuple(steps),
            left=tuple(left),
            looked_at=looked_at,
            more=more,
        )


async def forget(
    scope: Scope,
    records: Sequence[MemoryRecord],
    *,
    why: str,
    run: MaintenanceRun,
    ledger: Ledger,
    evicts: bool = False,
) -> tuple[list[MaintenanceStep], list[str]]:
    """Forget memories softly, finish the run, and return the steps and why some memories were left.

    With `evicts`, they only make room for others. A memory that was changed after it was read is left alone. History
    keeps what is forgotten, and undo restores it.
    """
    done: list[MemoryRecord] = []
    left: list[str] = []
    for start in range(0, len(records), _CHUNK):
        chunk = list(records[start : start + _CHUNK])
        if not run.dry_run:
            chunk, changed = await _forget_unchanged(scope, chunk, run.author_for(why), ledger, evicts=evicts)
            left += changed
        done += chunk
    await finish(scope, run, ledger)
    steps = [MaintenanceStep(verb=ChangeKind.FORGET, id=each.id, content=each.content, why=why) for each in done]
    return steps, left


async def _forget_unchanged(
    scope: Scope, chunk: list[MemoryRecord], by: Author, ledger: Ledger, *, evicts: bool
) -> tuple[list[MemoryRecord], list[str]]:
    left: list[str] = []
    for _ in range(_MAX_TRIES):
        try:
            if chunk:
                changes = [Forget(each.id, each.version, evicts) for each in chunk]
                await ledger.apply(scope, changes, by=by)
            return chunk, left
        except (Conflict, NotFound):
            current = {each.id: each.version for each in await ledger.get(scope, [each.id for each in chunk])}
            left += [f"{each.id} was changed meanwhile" for each in chunk if current.get(each.id) != each.version]
            chunk = [each for each in chunk if current.get(each.id) == each.version]
    return [], [*left, f"{len(chunk)} memories kept changing"]


async def finish(scope: Scope, run: MaintenanceRun, ledger: Ledger, *effects: Effect) -> None:
    """Apply the effects of the run, if there are any."""
    if run.effects or effects:
        await ledger.apply(scope, [], by=run.by, effects=[*effects, *run.effects])
