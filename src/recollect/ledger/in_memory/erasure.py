"""API keys as the ledger in memory keeps them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from recollect.errors import Conflict, NotFound
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
from recollect.ledger.in_memory.jobs import MemoryMaintenance
from recollect.ledger.in_memory.rows import StoredRow, UserState, index_row, plain_copy
from recollect.ledger.index_feed import ChangedRow, FeedPosition, IndexLag, Revision
from recollect.ledger.model_states import EmbeddingProgress, ModelOrigin, ModelState, current_model_state
from recollect.ledger.plan import Plan, Revert
from recollect.ledger.responses import NEVER_NATIVE, SKEW, paginate_items
from recollect.ledger.tombstones import resent_turn_ids, role_and_text, tombstone_changes
from recollect.model.change import Applied, Author, Change, Forget, Restore, Update
from recollect.model.erasure import (
    Erasure,
    ErasureRequest,
    Receipt,
    Remade,
    StoreErasure,
    Target,
    TombstoneSet,
    id_digest,
    new_secret,
    text_digest,
    user_digest,
    user_key,
)
from recollect.model.ids import new_id
from recollect.model.job import JobState
from recollect.model.key import ApiKey
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import validate_limit
from recollect.model.response import Plain, StoredResponse, Thread, ThreadItems
from recollect.model.scope import Scope
from recollect.model.times import now, to_micros
from recollect.model.turn import Turn
from recollect.models.embedding import EmbeddingModel


class MemoryApiKeys:
    """The plainest reading of `Keys`."""

    def __init__(self) -> None:
        self._keys: dict[str, ApiKey] = {}

    def _check_open(self) -> None:
        raise NotImplementedError

    async def add_key(self, key: ApiKey) -> None:
        self._check_open()
        self._keys[key.id] = key

    async def keys(self, user: str | None = None) -> list[ApiKey]:
        self._check_open()
        return [key for _, key in sorted(self._keys.items()) if user in (None, key.user)]

    async def find_key(self, hash: bytes) -> ApiKey:
        self._check_open()
        for key in self._keys.values():
            if key.hash == hash:
                return key
        raise NotFound("no such key")

    async def has_keys(self) -> bool:
        self._check_open()
        return bool(self._keys)

    async def revoke_key(self, id: str, *, at: datetime) -> ApiKey:
        self._check_open()
        if id not in self._keys:
            raise NotFound(f"no key {id!r}")
        if self._keys[id].revoked_at is None:
            self._keys[id] = replace(self._keys[id], revoked_at=at)
        return self._keys[id]

    async def record_key_use(self, used: Mapping[str, datetime]) -> None:
        self._check_open()
        for id, at in used.items():
            key = self._keys.get(id)
            if key is not None and (key.last_used_at is None or key.last_used_at < at):
                self._keys[id] = replace(key, last_used_at=at)


class MemoryIndexFeed:
    """How far indexes are is kept with each user, and goes with them."""

    _users: dict[str, UserState]

    def __init__(self) -> None:
        self._feeders: dict[str, tuple[str, datetime]] = {}

    def _user(self, name: str) -> UserState:
        raise NotImplementedError

    def _check_open(self) -> None:
        raise NotImplementedError

    async def row_count(self, user: str, *, max_count: int, after: int = 0) -> int:
        return min(sum(row.revision > after for row in self._user(user).rows.values()), max_count)

    async def vectors_of(self, user: str, rows: Sequence[int], *, model: EmbeddingModel) -> Mapping[int, bytes]:
        row_numbers = {int(row) for row in rows}
        stored_rows = self._user(user).rows.values()
        return {
            row.number: row.vectors[model]
            for row in stored_rows
            if row.number in row_numbers and model in row.vectors
        }

    async def changed_rows(
        self, user: str, *, model: EmbeddingModel, after: tuple[int, int], limit: int
    ) -> list[ChangedRow]:
        changed = [row for row in self._user(user).rows.values() if (row.revision, row.number) > after]
        changed.sort(key=lambda row: (row.revision, row.number))
        return [
            ChangedRow(row.revision, index_row(row.number, row.record, row.vectors.get(model)))
            for row in changed[: validate_limit(limit)]
        ]

    async def feed_position(self, user: str, *, index: str) -> FeedPosition:
        return self._user(user).feed_positions.get(index, FeedPosition())

    async def lagging_users(self, index: str, *, limit: int, after: str = "") -> list[IndexLag]:
        self._check_open()
        lags = [
            IndexLag(
                name, Revision(user.revision, user.epoch), user.feed_positions.get(index, FeedPosition()).revision
            )
            for name, user in sorted(self._users.items())
            if name > after and user.revision
        ]
        return [each for each in lags if each.current != each.indexed][: validate_limit(limit)]

    async def lease_feed(self, index: str, *, feeder: str, lease_s: float, take: bool = False) -> bool:
        self._check_open()
        holder, until = self._feeders.get(index, (feeder, now()))
        if not take and holder != feeder and until >= now():
            return False
        self._feeders[index] = (feeder, now() + timedelta(seconds=lease_s))
        return True

    async def save_feed_positions(
        self, index: str, positions: Mapping[str, Revision], *, feeder: str, settles_s: float = 0.0
    ) -> bool:
        self._check_open()
        if positions and self._feeders.get(index, ("", None))[0] != feeder:
            return False
        for name, revision in positions.items():
            if name in self._users:
                before = self._users[name].feed_positions.get(index, FeedPosition())
                self._users[name].feed_positions[index] = before.advanced_to(revision, settles_s, at=to_micros(now()))
        return True

    async def reset_feed(self, index: str) -> None:
        self._check_open()
        for user in self._users.values():
            user.feed_positions.pop(index, None)


class MemoryModelStates:
    """The plainest reading of `ModelStateStore`."""

    def __init__(self) -> None:
        self._models: dict[EmbeddingModel, ModelState] = {}
        self._leases: dict[EmbeddingModel, tuple[str, datetime]] = {}

    def _check_open(self) -> None:
        raise NotImplementedError

    def _rows(self) -> list[StoredRow]:
        raise NotImplementedError

    async def model_states(self) -> list[ModelState]:
        self._check_open()
        return list(self._models.values())

    async def make_current(
        self, model: EmbeddingModel, origin: ModelOrigin, *, replacing: EmbeddingModel | None
    ) -> ModelState:
        self._check_open()
        state = self._models.setdefault(model, ModelState(model=model))
        before = current_model_state(self._models.values())
        if before is not None and before.model != replacing:
            return before
        if before is not None and before.model != model:
            self._models[before.model] = replace(before, is_current=False, retired_at=now())
        if before is None or before.model != model:
            state = replace(state, is_current=True, current_at=now(), retired_at=None)
        self._models[model] = replace(state, origin=origin)
        return self._models[model]

    async def lease_model(
        self,
        model: EmbeddingModel,
        origin: ModelOrigin,
        *,
        owner: str,
        lease_s: float,
        progress: EmbeddingProgress | None = None,
    ) -> bool:
        self._check_open()
        state = self._models.setdefault(model, ModelState(model=model))
        holder, until = self._leases.get(model, ("", now()))
        if holder != owner and until > now():
            return False
        until = now() + timedelta(seconds=lease_s)
        self._leases[model] = (owner, until)
        if progress is not None:
            state = replace(state, embedded=progress.done, to_embed=progress.total)
        self._models[model] = replace(state, lease_expires_at=until, origin=origin if origin.spec else state.origin)
        return True

    async def count_embedded(self, model: EmbeddingModel) -> EmbeddingProgress:
        rows = self._rows()
        return EmbeddingProgress(sum(model in row.vectors for row in rows), len(rows))


class MemoryResponses:
    """Each user's responses and threads, in dicts."""

    _users: dict[str, UserState]
    _erasures: dict[str, Erasure]

    def _user(self, name: str) -> UserState:
        raise NotImplementedError

    async def save_response(
        self, scope: Scope, response: StoredResponse, *, items: ThreadItems | None = None, started_at: datetime
    ) -> None:
        user, digest = self._user(scope.user), user_digest(scope.user)
        recent_erasures = [
            each for each in self._erasures.values() if each.user == digest and each.at >= started_at - SKEW
        ]
        # Upkeep moves the epoch as well, but notes no erasure.
        if recent_erasures and user.epoch != response.epoch:
            raise Conflict("something of this user was erased while the response was made; it is not kept")
        if items is not None:
            _add_items(user, items)
        self._users[scope.user] = user
        user.revision = max(user.revision, 1)
        user.responses[response.id] = _copy_response(response)

    async def response(self, scope: Scope, id: str) -> StoredResponse:
        stored = self._user(scope.user).responses.get(id)
        if stored is None or _is_expired(stored.expires_at, now()):
            raise NotFound(f"no response {id}")
        return _copy_response(stored)

    async def response_chain(self, scope: Scope, id: str) -> list[StoredResponse]:
        chain = [await self.response(scope, id)]
        responses = self._user(scope.user).responses
        while (before := responses.get(chain[-1].previous_id)) is not None:
            chain.append(_copy_response(before))
        return chain[::-1]

    async def drop_response(self, scope: Scope, id: str) -> None:
        await self.response(scope, id)
        drop_responses(self._user(scope.user), [id])

    async def save_thread(self, scope: Scope, thread: Thread) -> None:
        user = self._users[scope.user] = self._user(scope.user)
        user.revision = max(user.revision, 1)
        user.threads[thread.id] = replace(thread, metadata=plain_copy(thread.metadata))
        user.thread_items.setdefault(thread.id, {})

    async def thread(self, scope: Scope, id: str) -> Thread:
        return _find_thread(self._user(scope.user), id)

    async def drop_thread(self, scope: Scope, id: str) -> None:
        user = self._user(scope.user)
        del user.threads[_find_thread(user, id).id], user.thread_items[id]

    async def add_items(self, scope: Scope, items: ThreadItems) -> None:
        _add_items(self._user(scope.user), items)

    async def thread_items(
        self, scope: Scope, thread_id: str, *, after: str = "", newest_first: bool = False, limit: int | None = None
    ) -> list[Plain]:
        user = self._user(scope.user)
        stored_items = user.thread_items[_find_thread(user, thread_id).id]
        page = paginate_items(list(stored_items), after, newest_first=newest_first, limit=limit)
        return [plain_copy(stored_items[id][0]) for id in page]

    async def thread_item(self, scope: Scope, thread_id: str, id: str) -> Plain:
        user = self._user(scope.user)
        stored_items = user.thread_items[_find_thread(user, thread_id).id]
        if id not in stored_items:
            raise NotFound(f"no item {id} in conversation {thread_id}")
        return plain_copy(stored_items[id][0])

    async def drop_item(self, scope: Scope, thread_id: str, id: str) -> None:
        await self.thread_item(scope, thread_id, id)
        del self._user(scope.user).thread_items[thread_id][id]

    async def prune_responses(self, before: datetime) -> int:
        pruned = 0
        for user in self._users.values():
            alive = {each.root_id for each in user.responses.values() if not _expired_before(each.expires_at, before)}
            removed = [each.id for each in user.responses.values() if each.root_id not in alive]
            threads = [each.id for each in user.threads.values() if _expired_before(each.expires_at, before)]
            for id in removed:
                del user.responses[id]
            for id in threads:
                del user.threads[id], user.thread_items[id]
            pruned += len(removed) + len(threads)
        return pruned


def _find_thread(user: UserState, id: str) -> Thread:
    stored = user.threads.get(id)
    if stored is None or _is_expired(stored.expires_at, now()):
        raise NotFound(f"no conversation {id}")
    return replace(stored, metadata=plain_copy(stored.metadata))


def _add_items(user: UserState, added: ThreadItems) -> None:
    thread = _find_thread(user, added.thread_id)
    stored_items, ids = user.thread_items[thread.id], [each["id"] for each in added.items]
    if len(set(ids)) < len(ids) or any(id in stored_items for id in ids):
        raise Conflict("the conversation has an item of that id")
    stored_items.update({each["id"]: (plain_copy(each), added.names) for each in added.items})
    if added.expires_at is not None:
        user.threads[thread.id] = replace(thread, expires_at=added.expires_at)


def _copy_response(response: StoredResponse) -> StoredResponse:
    input_items = tuple(plain_copy(each) for each in response.input_items)
    return replace(response, body=plain_copy(response.body), input_items=input_items)


def _is_expired(expires_at: datetime | None, at: datetime) -> bool:
    return expires_at is not None and expires_at <= at


def _expired_before(expires_at: datetime | None, at: datetime) -> bool:
    return expires_at is not None and expires_at < at


def drop_responses(user: UserState, ids: Collection[str]) -> None:
    """Remove responses; what went on from one goes on from what was before it."""
    for id in ids:
        removed = user.responses.pop(id)
        for each in list(user.responses.values()):
            if each.root_id != removed.root_id:
                continue
            before = removed.previous_id if each.previous_id == id else each.previous_id
            epoch = NEVER_NATIVE if each.created_at >= removed.created_at else each.epoch
            user.responses[each.id] = replace(each, previous_id=before, epoch=epoch)


def drop_mentioned(user: UserState, ids: Collection[str]) -> Mapping[str, int]:
    """Remove responses and items that hold words of what is gone."""
    removed = set(ids)
    named = [each.id for each in user.responses.values() if removed.intersection(each.names)]
    drop_responses(user, named)
    items = 0
    for stored_items in user.thread_items.values():
        for id in [id for id, (_, names) in stored_items.items() if removed.intersection(names)]:
            del stored_items[id]
            items += 1
    return {"responses": len(named), "items": items}


def drop_inside(user: UserState, inside: Callable[[str, str], bool]) -> Mapping[str, int]:
    """Remove the responses and threads of the sessions that are inside."""
    removed = [each.id for each in user.responses.values() if inside(each.scope.project, each.scope.session)]
    threads = [each.id for each in user.threads.values() if inside(each.scope.project, each.scope.session)]
    for id in removed:
        del user.responses[id]
    items = 0
    for id in threads:
        del user.threads[id]
        items += len(user.thread_items.pop(id))
    return {"responses": len(removed), "threads": len(threads), "items": items}


class MemoryTombstones:
    """Digests by user, with the time at which each was forgotten."""

    def __init__(self) -> None:
        self._secret = new_secret()
        self._tombstones: defaultdict[str, dict[str, datetime]] = defaultdict(dict)
        self._imported_keys: defaultdict[str, set[str]] = defaultdict(set)

    async def tombstoned(self, user: str, messages: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        forgotten_at, keys = self._tombstones.get(user, {}), self._tombstone_keys(user)
        return frozenset(each for each in messages if any(text_digest(key, *each) in forgotten_at for key in keys))

    async def has_tombstones(self, user: str) -> bool:
        return bool(self._tombstones.get(user))

    async def tombstones(self, user: str) -> TombstoneSet:
        forgotten_at = self._tombstones.get(user)
        return TombstoneSet(tuple(self._tombstone_keys(user)), dict(forgotten_at)) if forgotten_at else TombstoneSet()

    async def put_tombstones(self, user: str, incoming: TombstoneSet) -> None:
        self._imported_keys[user] |= set(incoming.keys) - {user_key(self._secret, user)}
        self._tombstones[user] |= incoming.digests

    def _write_tombstones(self, user: str, planned: Plan) -> None:
        """Add the tombstones of turns that a plan forgets, and remove those of turns that it makes active."""
        changes, key = tombstone_changes(planned), user_key(self._secret, user)
        for message in changes.removed if self._tombstones.get(user) else ():
            for each in self._tombstone_keys(user):
                self._tombstones[user].pop(text_digest(each, *message), None)
        for message in changes.added:
            self._tombstones[user][text_digest(key, *message)] = planned.at

    def _add_for_erased(self, name: str, user: UserState, ids: Collection[str], *, purged: bool = False) -> None:
        """Add the tombstones of turns that are about to be erased; the texts of purged ones have theirs."""
        key, at = user_key(self._secret, name), now()
        for id in ids:
            if id in user.rows and user.rows[id].record.category is Category.TURN:
                text = () if purged else (text_digest(key, *role_and_text(user.rows[id].record)),)
                self._tombstones[name] |= dict.fromkeys((*text, id_digest(key, id)), at)

    def _resent_turns(self, user: str, turns: Sequence[Turn], received_at: datetime) -> set[str]:
        forgotten_at = self._tombstones.get(user, {})
        return (
            resent_turn_ids(turns, self._tombstone_keys(user), forgotten_at, received_at=received_at)
            if forgotten_at
            else set()
        )

    def _tombstone_keys(self, user: str) -> list[str]:
        return [user_key(self._secret, user), *sorted(self._imported_keys[user])]


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
