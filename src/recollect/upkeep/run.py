"""One run of upkeep: who asks for it, how much it may do, and how it forgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from recollect.errors import Conflict, InvalidInput, NotFound
from recollect.ledger.jobs import MAINTENANCE_AUTHOR
from recollect.ledger.protocol import Ledger
from recollect.model.change import Author, Forget
from recollect.model.effect import Effect
from recollect.model.ids import new_id
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope
from recollect.model.times import now

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
