"""Look memories up as a ledger does, and give again what took long to read while nothing of the user's has changed.

Other than for recall, Redis holds here what the memories say, or nothing would be saved. An access that is counted
changes nothing that is looked for, so how often a memory was recalled can be as old as what is held.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from time import perf_counter
from typing import Any, TypeVar

from recollect import __version__
from recollect.ledger.protocol import Ledger
from recollect.ledger.sql.records import record_from_row, record_to_row
from recollect.model.memory import MemoryRecord
from recollect.model.query import Listing
from recollect.model.result import Page
from recollect.model.scope import Scope
from recollect.read.again import CacheAdmission
from recollect.shared.answers import AnswerCache, CacheKey

_T = TypeVar("_T")
_CACHE = "lookup"
# More at once are hardly asked for again, and would keep others waiting while they are packed.
_MAX_RECORDS = 100
_MAX_BYTES = 256 << 10
# What accesses change without anything of the user's having changed.
_VOLATILE_FIELDS = ("access_count", "last_accessed_at")


class LookupCache:
    """Memories in lists, how many there are, and `single` ones: as the ledger tells them, or told before."""

    def __init__(self, answers: AnswerCache, ledger: Ledger, *, min_s: float, single: bool) -> None:
        self._answers = answers
        self._ledger = ledger
        self._caches_single = single
        # A list can take long where one memory does not.
        self._admission = {kind: CacheAdmission(min_s) for kind in ("get", "find", "count")}

    async def get(self, scope: Scope, ids: Sequence[str]) -> list[MemoryRecord]:
        """The user's memories of these ids, in their order; ids that are not theirs are left out."""

        async def read() -> list[MemoryRecord]:
            return await self._ledger.get(scope, ids)

        if not self._caches_single:
            return await read()
        return await self._read_through("get", scope, list(ids), read, pack=_pack, unpack=_unpack)

    async def find(self, scope: Scope, listing: Listing) -> Page:
        """Some of the memories in the scope, in order, and where to go on."""

        async def read() -> Page:
            return await self._ledger.find(scope, listing)

        def pack(page: Page) -> Any:
            rows = _pack(page.records)
            return None if rows is None else [rows, page.cursor]

        def unpack(stored: Any) -> Page:
            rows, cursor = stored
            return Page(tuple(_unpack(rows)), cursor)

        return await self._read_through("find", scope, listing, read, pack=pack, unpack=unpack)

    async def count(self, scope: Scope, listing: Listing) -> int:
        """How many memories the listing has in all."""

        async def read() -> int:
            return await self._ledger.count(scope, listing)

        return await self._read_through("count", scope, listing, read, pack=int, unpack=int)

    async def _read_through(
        self,
        kind: str,
        scope: Scope,
        request: object,
        read: Callable[[], Awaitable[_T]],
        *,
        pack: Callable[[_T], Any],
        unpack: Callable[[Any], _T],
    ) -> _T:
        """What was told before at this revision, else what the ledger tells now."""
        admission, key = self._admission[kind], None
        if admission.should_look_up and not self._answers.is_unavailable:
            key = await self._cache_key(kind, scope, repr(request))
        stored = await self._answers.get(key, cache=_CACHE) if key is not None else None
        if stored is not None:
            try:
                return unpack(json.loads(stored))
            except (ValueError, TypeError, KeyError):
                # Not what we put there: it is read as if nothing were.
                pass
        started = perf_counter()
        value = await read()
        if admission.should_store(perf_counter() - started) and key is not None:
            packed = pack(value)
            stored = b"" if packed is None else json.dumps(packed).encode()
            if 0 < len(stored) <= _MAX_BYTES:
                self._answers.put_in_background(key, stored)
        return value

    async def _cache_key(self, kind: str, scope: Scope, request: str) -> CacheKey | None:
        if any(name in request for name in _VOLATILE_FIELDS):
            return None
        revision = await self._ledger.revision(scope.user)
        key_parts = (
            __version__,
            _CACHE,
            kind,
            scope.project,
            scope.session,
            revision.number,
            revision.epoch,
            request,
        )
        return CacheKey(scope.user, revision, blake2b(repr(key_parts).encode("utf-8", "surrogatepass")).hexdigest())


def _pack(records: Sequence[MemoryRecord]) -> list[Any] | None:
    """Records as plain values; None for too many, and for none, since an unknown id may be any of very many."""
    return [record_to_row(record) for record in records] if 0 < len(records) <= _MAX_RECORDS else None


def _unpack(rows: Sequence[Any]) -> list[MemoryRecord]:
    if not rows:
        raise ValueError("no list without records is ever held")
    return [record_from_row(row) for row in rows]
