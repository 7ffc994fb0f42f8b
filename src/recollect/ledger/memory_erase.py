"""Erasing as the ledger in memory does it: what goes is dropped from every dict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime

from recollect.errors import Conflict
from recollect.ledger.cascade import (
    Cascade,
    MemoryLink,
    build_link,
    cascade,
    check_exists,
    erasure_seeds,
    mentions_any,
    strip_ids,
    with_older_versions,
)
from recollect.ledger.memory_chores import MemoryMaintenance
from recollect.ledger.memory_feeds import MemoryIndexFeed
from recollect.ledger.memory_keys import MemoryApiKeys
from recollect.ledger.memory_models import MemoryModelStates
from recollect.ledger.memory_responses import MemoryResponses, drop_inside, drop_mentioned
from recollect.ledger.memory_rows import UserState
from recollect.ledger.memory_tombstones import MemoryTombstones
from recollect.ledger.plan import Revert
from recollect.model.change import Applied, Author, Change, Forget, Restore, Update
from recollect.model.erase import Erasure, ErasureRequest, Receipt, Remade, StoreErasure, Target, user_digest
from recollect.model.ids import new_id
from recollect.model.job import JobState
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.scope import Scope
from recollect.model.times import now


class MemoryErasure(
    MemoryMaintenance, MemoryResponses, MemoryApiKeys, MemoryIndexFeed, MemoryModelStates, MemoryTombstones
):
    """What is erased is in no dict any more; how its bytes fade from memory is Python's business."""

    on_change: Callable[[str], None]

    def __init__(self) -> None:
        super().__init__()
        MemoryApiKeys.__init__(self)
        MemoryIndexFeed.__init__(self)
        MemoryModelStates.__init__(self)
        MemoryTombstones.__init__(self)
        self._erasures: dict[str, Erasure] = {}
        # Where the epoch goes on for a user of whom all was erased, by digest.
        self._epochs: dict[str, int] = {}

    def _user(self, name: str) -> UserState:
        raise NotImplementedError

    def _write(self, scope: Scope, user: UserState, changes: Sequence[Change | Revert], *, by: Author) -> Applied:
        raise NotImplementedError

    async def erase(self, scope: Scope, request: ErasureRequest, *, by: Author) -> Receipt:
        user = self._user(scope.user)
        request.check(scope)
        check_exists(_links(user), request)
        erasure = Erasure(
            id=new_id(),
            at=now(),
            user=user_digest(scope.user),
            target=request.target,
            project=scope.project if request.target in (Target.PROJECT, Target.SESSION) else "",
            session=scope.session if request.target is Target.SESSION else "",
            ids=(request.id, *request.also) if request.id else (),
        )
        receipt = self._erase(scope, request, erasure, by)
        self.on_change(scope.user)
        return receipt

    def _erase(self, scope: Scope, request: ErasureRequest, erasure: Erasure, by: Author) -> Receipt:
        user = self._user(scope.user)
        if request.target is Target.USER:
            counts = self._erase_user(scope.user, user, erasure)
            return _receipt(scope, request, erasure, counts)
        links = _links(user)
        seeds = erasure_seeds(links, scope, request.target, erasure.ids)
        result = cascade(links, seeds, with_older=request.target is Target.MEMORY, hide=request.hide)
        self._add_for_erased(scope.user, user, result.removed)
        counts = _remove(user, result.removed)
        counts["replies"] += self._drop_answers(scope.user, result.removed)
        by_id = request.target in (Target.TURN, Target.MEMORY)
        if by_id:
            erasure = replace(erasure, ids=(*erasure.ids, *sorted(result.removed.difference(erasure.ids))))
        else:
            dropped = self._drop_sessions(scope, user, whole_project=request.target is Target.PROJECT)
            counts = {kind: counts.get(kind, 0) + dropped.get(kind, 0) for kind in {**counts, **dropped}}
        blanked = _blank_summaries(scope.user, user, result)
        self._void_jobs(scope.user, result.removed)
        if scope.user in self._users:
            self._close_gaps(scope.user, user, result, by)
        user.epoch += 1
        self._erasures[erasure.id] = erasure
        receipt = _receipt(scope, request, erasure, counts)
        stays = result.stays if by_id else ()
        return replace(receipt, remade=(*result.remade, *blanked), stays=stays, hidden=result.hidden)

    def _erase_user(self, name: str, user: UserState, erasure: Erasure) -> dict[str, int]:
        self._add_for_erased(name, user, user.rows)
        counts = _count_kinds([row.record for row in user.rows.values()])
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
            "usage": sum(slot[0] == name for slot in self._spent),
        }
        self._users.pop(name, None)
        self._keys = {id: key for id, key in self._keys.items() if key.user != name}
        self._jobs = {id: job for id, job in self._jobs.items() if job.scope.user != name}
        for slot in [slot for slot in self._spent if slot[0] == name]:
            del self._spent[slot]
        self._served.pop(name, None)
        self._failures.pop(name, None)
        self._failed_at.pop(name, None)
        self._task_runs = {slot: run for slot, run in self._task_runs.items() if slot[0] != name}
        for id, each in self._erasures.items():
            if each.user == erasure.user:
                self._erasures[id] = replace(each, project="", session="", ids=())
        self._epochs[erasure.user] = user.epoch + 1
        self._erasures[erasure.id] = erasure
        return counts

    def _drop_sessions(self, scope: Scope, user: UserState, *, whole_project: bool) -> dict[str, int]:
        def inside(project: str, session: str) -> bool:
            return project == scope.project and (whole_project or session == scope.session)

        removed = [session for session in user.conversations if inside(*session)]
        for session in removed:
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
            project_key = (scope.user, scope.project)
            self._task_runs = {slot: run for slot, run in self._task_runs.items() if slot[:2] != project_key}
        return {"conversations": len(removed), "jobs": len(jobs), **drop_inside(user, inside)}

    def _void_jobs(self, user: str, ids: Collection[str]) -> None:
        """Have what runs done again, and keep jobs from naming or quoting what is gone."""
        for job in [job for job in self._jobs.values() if job.scope.user == user]:
            updated = replace(job, payload=strip_ids(job.payload, ids), error=None, result=None)
            if job.state is JobState.RUNNING:
                updated = replace(
                    updated,
                    state=JobState.WAITING,
                    tries=job.tries - 1,
                    due_at=now(),
                    worker=None,
                    lease=None,
                    leased_until=None,
                )
            self._jobs[job.id] = updated

    def _close_gaps(self, name: str, user: UserState, result: Cascade, by: Author) -> None:
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

    async def purge(self, before: datetime) -> StoreErasure:
        self._check_open()
        total: Counter[str] = Counter()
        for name, user in self._users.items():
            records = [row.record for row in user.rows.values()]
            old = [each.id for each in records if each.status is Status.FORGOTTEN and each.updated_at < before]
            if old:
                removed = with_older_versions(_links(user), old)
                self._add_for_erased(name, user, removed, purged=True)
                total.update(_remove(user, removed), replies=self._drop_answers(name, removed))
                user.epoch += 1
        return StoreErasure("ledger", dict(total))

    async def finish_erasures(self) -> StoreErasure:
        self._check_open()
        return StoreErasure("ledger")

    async def erasures(self, since: datetime | None = None) -> list[Erasure]:
        self._check_open()
        ordered = sorted(self._erasures.values(), key=lambda each: (each.at, each.id))
        return [each for each in ordered if each.is_replayable and (since is None or each.at >= since)]

    async def replay_erasures(self, erasures: Sequence[Erasure], *, by: Author) -> list[Receipt]:
        self._check_open()
        receipts = []
        for each in erasures:
            user = next((name for name in self._users if user_digest(name) == each.user), None)
            if each.id not in self._erasures and user is not None and each.is_replayable:
                scope = Scope(user, each.project, each.session)
                receipts.append(self._erase(scope, each.what, each, by))
        return receipts


def _receipt(scope: Scope, request: ErasureRequest, erasure: Erasure, counts: dict[str, int]) -> Receipt:
    return Receipt(id=erasure.id, at=erasure.at, scope=scope, what=request, stores=(StoreErasure("ledger", counts),))


def _links(user: UserState) -> dict[str, MemoryLink]:
    return {id: _link(row.record) for id, row in user.rows.items()}


def _link(record: MemoryRecord) -> MemoryLink:
    return build_link(
        record.id,
        record.scope,
        category=str(record.category),
        status=str(record.status),
        body={"evidence": record.evidence, "detail": record.detail},
        superseded_by=record.superseded_by,
    )


def _count_kinds(records: Sequence[MemoryRecord]) -> dict[str, int]:
    turns = sum(record.category is Category.TURN for record in records)
    return {"memories": len(records) - turns, "turns": turns}


def _remove(user: UserState, ids: Collection[str]) -> dict[str, int]:
    """Remove memories from everything that holds anything of them."""
    removed = [user.rows.pop(id) for id in ids if id in user.rows]
    counts = _count_kinds([row.record for row in removed])
    counts["vectors"] = sum(len(row.vectors) for row in removed)
    counts["history"] = sum(entry.memory_id in ids for entry in user.entries)
    user.entries[:] = [entry for entry in user.entries if entry.memory_id not in ids]
    for turn_ids in user.turn_ids.values():
        # The place stays taken, so that positions mean what they meant.
        turn_ids[:] = ["" if id in ids else id for id in turn_ids]
    named = [
        key for key, (_, applied, _) in user.done.items() if mentions_any([each.id for each in applied.outcomes], ids)
    ]
    for key in named:
        del user.done[key]
    return counts | {"replies": len(named), **drop_mentioned(user, ids)}


def _blank_summaries(name: str, user: UserState, result: Cascade) -> list[Remade]:
    """Take away what was made of sessions that lost a turn; says what can be made anew."""
    blanked = []
    for session in sorted(result.sessions & user.conversations.keys()):
        conversation = user.conversations[session]
        if conversation.summary or conversation.invocations:
            blanked.append(Remade("conversation", Scope(name, *session)))
        user.conversations[session] = replace(
            conversation, summary="", invocations=(), version=conversation.version + 1
        )
    return blanked
