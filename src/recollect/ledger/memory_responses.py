"""Responses and threads as the ledger in memory keeps them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime

from recollect.errors import Conflict, NotFound
from recollect.ledger.memory_rows import UserState, plain_copy
from recollect.ledger.responses import NEVER_NATIVE, SKEW, paginate_items
from recollect.model.erase import Erasure, user_digest
from recollect.model.response import Plain, StoredResponse, Thread, ThreadItems
from recollect.model.scope import Scope
from recollect.model.times import now


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
