"""Erasing as the ledger in memory does it: what goes is dropped from every dict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime

from recollect.errors import Conflict
from recollect.ledger.cascade import (
    Cascade,
    Link,
    cascade,
    check_found,
    link,
    mentions,
    older_than,
    seeds_of,
    without,
)
from recollect.ledger.memory_chores import MemoryChores
from recollect.ledger.memory_feeds import MemoryFeeds
from recollect.ledger.memory_keys import MemoryKeys
from recollect.ledger.memory_models import MemoryModels
from recollect.ledger.memory_responses import MemoryResponses, drop_inside, drop_mentioned
from recollect.ledger.memory_rows import User
from recollect.ledger.memory_tombstones import MemoryTombstones
from recollect.ledger.plan import Revert
from recollect.model.change import Applied, By, Change, Forget, Restore, Update
from recollect.model.erase import Cleared, Erase, Erasure, Receipt, Remade, Target, user_digest
from recollect.model.ids import new_id
from recollect.model.job import JobState
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.scope import Scope
from recollect.model.times import now


class MemoryErasing(MemoryChores, MemoryResponses, MemoryKeys, MemoryFeeds, MemoryModels, MemoryTombstones):
    """What is erased is in no dict any more; how its bytes fade from memory is Python's business."""

    on_change: Callable[[str], None]

    def __init__(self) -> None:
        super().__init__()
        MemoryKeys.__init__(self)
        MemoryFeeds.__init__(self)
        MemoryModels.__init__(self)
        MemoryTombstones.__init__(self)
        self._erasures: dict[str, Erasure] = {}
        # Where the epoch goes on for a user of whom all was erased, by digest.
        self._epochs: dict[str, int] = {}

    def _user(self, name: str) -> User:
        raise NotImplementedError

    def _write(self, scope: Scope, user: User, changes: Sequence[Change | Revert], *, by: By) -> Applied:
        raise NotImplementedError

    async def erase(self, scope: Scope, what: Erase, *, by: By) -> Receipt:
        user = self._user(scope.user)
        what.check(scope)
        check_found(_links(user), what)
        noted = Erasure(
            id=new_id(),
            at=now(),
            user=user_digest(scope.user),
            target=what.target,
            project=scope.project if what.target in (Target.PROJECT, Target.SESSION) else "",
            session=scope.session if what.target is Target.SESSION else "",
            ids=(what.id, *what.also) if what.id else (),
        )
        receipt = self._erase(scope, what, noted, by)
        self.on_change(scope.user)
        return receipt

    def _erase(self, scope: Scope, what: Erase, noted: Erasure, by: By) -> Receipt:
        user = self._user(scope.user)
        if what.target is Target.USER:
            counts = self._erase_user(scope.user, user, noted)
            return _receipt(scope, what, noted, counts)
        links = _links(user)
        seeds = seeds_of(links, scope, what.target, noted.ids)
        result = cascade(links, seeds, with_older=what.target is Target.MEMORY, hide=what.hide)
        self._add_for_erased(scope.user, user, result.gone)
        counts = _remove(user, result.gone)
        counts["replies"] += self._drop_answers(scope.user, result.gone)
        by_id = what.target in (Target.TURN, Target.MEMORY)
        if by_id:
            noted = replace(noted, ids=(*noted.ids, *sorted(result.gone.difference(noted.ids))))
        else:
            dropped = self._drop_sessions(scope, user, whole_project=what.target is Target.PROJECT)
            counts = {kind: counts.get(kind, 0) + dropped.get(kind, 0) for kind in {**counts, **dropped}}
        blanked = _blank_summaries(scope.user, user, result)
        self._void_jobs(scope.user, result.gone)
        if scope.user in self._users:
            self._close_gaps(scope.user, user, result, by)
        user.epoch += 1
        self._erasures[noted.id] = noted
        receipt = _receipt(scope, what, noted, counts)
        stays = result.stays if by_id else ()
        return replace(receipt, remade=(*result.remade, *blanked), stays=stays, hidden=result.hidden)

    def _erase_user(self, name: str, user: User, noted: Erasure) -> dict[str, int]:
        self._add_for_erased(name, user, user.rows)
        counts = _counted([row.record for row in user.rows.values()])
        counts |= {
            "vectors": sum(len(row.vectors) for row in user.rows.values()),
            "history": len(user.entries),
            "conversations": len(user.conversations),
            "jobs": sum(job.scope.user == name for job in self._jobs.values()),
            "responses": len(user.responses),
            "threads": len(user.threads),
            "items": sum(map(len, user.thread_items.values())),
            "replies": len(user.done) + self._drop_answers(name),
            "keys": sum(key.user == name for key in self._keys.values()),
            "usage": sum(place[0] == name for place in self._spent),
        }
        self._users.pop(name, None)
        self._keys = {id: key for id, key in self._keys.items() if key.user != name}
        self._jobs = {id: job for id, job in self._jobs.items() if job.scope.user != name}
        for place in [place for place in self._spent if place[0] == name]:
            del self._spent[place]
        self._served.pop(name, None)
        self._failures.pop(name, None)
        self._failed_at.pop(name, None)
        self._chores = {place: begun for place, begun in self._chores.items() if place[0] != name}
        for id, each in self._erasures.items():
            if each.user == noted.user:
                self._erasures[id] = replace(each, project="", session="", ids=())
        self._epochs[noted.user] = user.epoch + 1
        self._erasures[noted.id] = noted
        return counts

    def _drop_sessions(self, scope: Scope, user: User, *, whole_project: bool) -> dict[str, int]:
        def inside(project: str, session: str) -> bool:
            return project == scope.project and (whole_project or session == scope.session)

        gone = [session for session in user.conversations if inside(*session)]
        for session in gone:
            user.conversations.pop(session)
            user.turn_ids.pop(session, None)
        jobs = [
            job.id
            for job in self._jobs.values()
            if job.scope.user == scope.user and inside(job.scope.project, job.scope.session)
        ]
        for id in jobs:
            del self._jobs[id]
        if whole_project:
            mine = (scope.user, scope.project)
            self._chores = {place: begun for place, begun in self._chores.items() if place[:2] != mine}
        return {"conversations": len(gone), "jobs": len(jobs), **drop_inside(user, inside)}

    def _void_jobs(self, user: str, ids: Collection[str]) -> None:
        """Have what runs done again, and keep jobs from naming or quoting what is gone."""
        for job in [job for job in self._jobs.values() if job.scope.user == user]:
            left = replace(job, payload=without(job.payload, ids), error=None, result=None)
            if job.state is JobState.RUNNING:
                left = replace(
                    left,
                    state=JobState.WAITING,
                    tries=job.tries - 1,
                    due_at=now(),
                    worker=None,
                    lease=None,
                    leased_until=None,
                )
            self._jobs[job.id] = left

    def _close_gaps(self, name: str, user: User, result: Cascade, by: By) -> None:
        scope, relinked = Scope(name), dict(result.relinked)
        for id in result.restored:
            try:
                self._write(scope, user, [Restore(id)], by=by)
            except Conflict:
                # Something else says the same or holds the key by now.
                relinked[id] = None
        changes: list[Change] = [Update(id, {"superseded_by": other}) for id, other in relinked.items()]
        changes += [Forget(id) for id in result.hidden]
        self._write(scope, user, changes, by=by)

    async def purge(self, before: datetime) -> Cleared:
        self._check_open()
        total: Counter[str] = Counter()
        for name, user in self._users.items():
            records = [row.record for row in user.rows.values()]
            old = [each.id for each in records if each.status is Status.FORGOTTEN and each.updated_at < before]
            if old:
                gone = older_than(_links(user), old)
                self._add_for_erased(name, user, gone, purged=True)
                total.update(_remove(user, gone), replies=self._drop_answers(name, gone))
                user.epoch += 1
        return Cleared("ledger", dict(total))

    async def finish_erasures(self) -> Cleared:
        self._check_open()
        return Cleared("ledger")

    async def erasures(self, since: datetime | None = None) -> list[Erasure]:
        self._check_open()
        found = sorted(self._erasures.values(), key=lambda each: (each.at, each.id))
        return [each for each in found if each.names_something and (since is None or each.at >= since)]

    async def replay_erasures(self, erasures: Sequence[Erasure], *, by: By) -> list[Receipt]:
        self._check_open()
        receipts = []
        for each in erasures:
            user = next((name for name in self._users if user_digest(name) == each.user), None)
            if each.id not in self._erasures and user is not None and each.names_something:
                scope = Scope(user, each.project, each.session)
                receipts.append(self._erase(scope, each.what, each, by))
        return receipts


def _receipt(scope: Scope, what: Erase, noted: Erasure, counts: dict[str, int]) -> Receipt:
    return Receipt(id=noted.id, at=noted.at, scope=scope, what=what, stores=(Cleared("ledger", counts),))


def _links(user: User) -> dict[str, Link]:
    return {id: _link(row.record) for id, row in user.rows.items()}


def _link(record: MemoryRecord) -> Link:
    return link(
        record.id,
        record.scope,
        category=str(record.category),
        status=str(record.status),
        body={"evidence": record.evidence, "detail": record.detail},
        superseded_by=record.superseded_by,
    )


def _counted(records: Sequence[MemoryRecord]) -> dict[str, int]:
    turns = sum(record.category is Category.TURN for record in records)
    return {"memories": len(records) - turns, "turns": turns}


def _remove(user: User, ids: Collection[str]) -> dict[str, int]:
    """Remove memories from everything that holds anything of them."""
    gone = [user.rows.pop(id) for id in ids if id in user.rows]
    counts = _counted([row.record for row in gone])
    counts["vectors"] = sum(len(row.vectors) for row in gone)
    counts["history"] = sum(entry.memory_id in ids for entry in user.entries)
    user.entries[:] = [entry for entry in user.entries if entry.memory_id not in ids]
    for said in user.turn_ids.values():
        # The place stays taken, so that positions mean what they meant.
        said[:] = ["" if id in ids else id for id in said]
    named = [
        key for key, (_, applied, _) in user.done.items() if mentions([each.id for each in applied.outcomes], ids)
    ]
    for key in named:
        del user.done[key]
    return counts | {"replies": len(named), **drop_mentioned(user, ids)}


def _blank_summaries(name: str, user: User, result: Cascade) -> list[Remade]:
    """Take away what was made of sessions that lost a turn; says what can be made anew."""
    blanked = []
    for session in sorted(result.sessions & user.conversations.keys()):
        found = user.conversations[session]
        if found.summary or found.invocations:
            blanked.append(Remade("conversation", Scope(name, *session)))
        user.conversations[session] = replace(found, summary="", invocations=(), version=found.version + 1)
    return blanked
