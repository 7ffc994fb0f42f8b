"""Keep a user, a project and a session within the number of memories they may have."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from recollect.errors import InvalidInput
from recollect.ledger.protocol import Ledger
from recollect.model.filters import any_of
from recollect.model.memory import Category, MemoryRecord
from recollect.model.query import EVERYTHING, And, Filter, Listing, Not, both
from recollect.model.scope import Level, Scope
from recollect.upkeep.decay import Decay, is_lasting, standing
from recollect.upkeep.report import Chore, Report, forgotten
from recollect.upkeep.run import Run, finish, forget

WHY = "quota"
_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """How many memories there may be: of a user in all, of one project, and at the level of one session; 0 for any.

    What goes first is the `weakest`, by `Decay`, of which those that must not fade go last; or simply the `oldest`.
    What a run is for, written since it was asked for, is made room for: others go.
    Summaries and files do not count and do not go, nor do turns unless they are asked for.
    """

    user: int = 0
    project: int = 0
    session: int = 0
    order: Literal["weakest", "oldest"] = "weakest"
    turns: bool = False
    exempt: tuple[Category, ...] = (Category.SUMMARY, Category.FILE)
    decay: Decay = field(default_factory=Decay)

    def __post_init__(self) -> None:
        if min(self.user, self.project, self.session) < 0:
            raise InvalidInput("a quota is a number of memories, or 0 for as many as there are")
        if self.order not in ("weakest", "oldest"):
            raise InvalidInput(f"what goes first is the weakest or the oldest, not {self.order!r}")

    @property
    def least(self) -> int:
        """The smallest of the limits; 0 if there is none."""
        return min(filter(None, (self.user, self.project, self.session)), default=0)

    @property
    def counted(self) -> Filter:
        """What counts."""
        exempt = {*self.exempt} if self.turns else {*self.exempt, Category.TURN}
        return Not(any_of("category", sorted(map(str, exempt))))


async def is_over(scope: Scope, *, ledger: Ledger, quotas: Quotas) -> bool:
    """Whether the session, the project or the user of a scope seems to have too much; a few counts tell."""
    session = And((any_of("session_id", scope.session), any_of("level", str(Level.SESSION))))
    parts: list[tuple[int, Filter]] = [(quotas.user, EVERYTHING)]
    parts += [(quotas.session, session)] if scope.session else []
    parts += [(quotas.project, any_of("project_id", scope.project))] if scope.project else []
    for limit, part in parts:
        listing = Listing(filter=both(quotas.counted, part))
        if limit and await ledger.count(Scope(scope.user), listing) > limit:
            return True
    return False


async def quota(scope: Scope, *, ledger: Ledger, run: Run, quotas: Quotas) -> Report:
    """Forget what is over the limits; softly, so that history keeps it and undo brings it back.

    A session is brought within its limit first, then its project, then the user as a whole.
    """
    owner = Scope(scope.user)
    count = await ledger.count(owner, Listing(filter=quotas.counted)) if quotas.least else 0
    going: list[MemoryRecord] = []
    if count > quotas.least:
        records = await _counted(owner, quotas, ledger)
        going = await asyncio.to_thread(_surplus, records, quotas, run)
    more = len(going) > run.most
    done, left = await forget(owner, going[: run.most], why=WHY, run=run, ledger=ledger)
    await finish(owner, run, ledger)
    return Report(
        chore=Chore.QUOTA,
        user=scope.user,
        dry_run=run.dry_run,
        batch=run.batch(bool(done)),
        steps=forgotten(done, WHY),
        left=tuple(left),
        looked_at=count,
        more=more,
    )


async def _counted(owner: Scope, quotas: Quotas, ledger: Ledger) -> list[MemoryRecord]:
    found: list[MemoryRecord] = []
    cursor = None
    while True:
        listing = Listing(filter=quotas.counted, order="oldest", limit=_PAGE, cursor=cursor)
        page = await ledger.find(owner, listing)
        found += page.records
        if page.cursor is None:
            return found
        cursor = page.cursor


def _surplus(records: Iterable[MemoryRecord], quotas: Quotas, run: Run) -> list[MemoryRecord]:
    """What has to go, in the order in which it goes."""
    first = sorted(records, key=lambda each: _rank(each, quotas, run.at))
    going: dict[str, MemoryRecord] = {}
    groups = (
        (quotas.session, _grouped(first, Level.SESSION)),
        (quotas.project, _grouped(first, Level.PROJECT)),
        (quotas.user, {"": first}),
    )
    for limit, group in groups:
        for members in group.values() if limit else ():
            staying = [each for each in members if each.id not in going]
            over = max(len(staying) - limit, 0)
            new = _written_last(staying, min(over, limit), run.since)
            going |= {each.id: each for each in [each for each in staying if each.id not in new][:over]}
    return list(going.values())


def _written_last(records: Iterable[MemoryRecord], count: int, since: datetime | None) -> set[str]:
    """Those of the newest that room is made for: whoever has just written something down finds it there."""
    if since is None or not count:
        return set()
    new = sorted((each.created_at, each.id) for each in records if each.created_at >= since)
    return {id for _, id in new[-count:]}


def _grouped(records: Iterable[MemoryRecord], level: Level) -> Mapping[Any, list[MemoryRecord]]:
    """The memories of each session, or of each project with its sessions."""
    groups: dict[Any, list[MemoryRecord]] = defaultdict(list)
    for each in records:
        if level is Level.SESSION and each.level is Level.SESSION:
            groups[each.scope.project, each.scope.session].append(each)
        elif level is Level.PROJECT and each.level is not Level.USER and each.scope.project:
            groups[each.scope.project].append(each)
    return groups


def _rank(record: MemoryRecord, quotas: Quotas, at: datetime) -> tuple[Any, ...]:
    if quotas.order == "oldest":
        return record.created_at, record.id
    return is_lasting(record), standing(record, at, decay=quotas.decay), record.created_at, record.id
