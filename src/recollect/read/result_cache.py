"""Cache the results of slow questions until a memory of the user changes.

Redis holds ids, scores and the question as it was completed; the memories themselves are always read from the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from time import perf_counter
from typing import Any, TypeVar

from recollect import __version__
from recollect.cache.answer_cache import AnswerCache, CacheKey
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.ledger import Ledger
from recollect.ledger.sql.memories import record_from_row, record_to_row
from recollect.model.erasure import StoreErasure
from recollect.model.memory import MemoryRecord, is_valid_now
from recollect.model.query import Listing
from recollect.model.result import Hit, Page
from recollect.model.scope import Scope
from recollect.model.times import now

# How the longest time that something took fades with each that took less: one slow question in some hundred is
# enough for looking to be worth it.
_DECAY = 0.98


class CacheAdmission:
    """Tracks whether results of a kind are slow enough to be worth a cache lookup."""

    def __init__(self, min_s: float) -> None:
        self._min_s = min_s
        self._slowest_s = min_s * 4

    @property
    def should_look_up(self) -> bool:
        """Return whether some results were slow recently."""
        return self._slowest_s >= self._min_s

    def should_store(self, duration_s: float) -> bool:
        """Record how long a result took; return whether it is worth caching."""
        self._slowest_s = max(duration_s, self._slowest_s * _DECAY)
        return duration_s >= self._min_s


@frozen_dataclass
class CachedAnswer:
    """A cached result: the rewritten query, the hits and the notes."""

    query: str = ""
    hits: tuple[Hit, ...] = ()
    notes: tuple[str, ...] = ()


@frozen_dataclass
class CacheLookup:
    """The cached answer, if any, and the key under which to store a new one."""

    answer: CachedAnswer | None = None
    key: CacheKey | None = None
    started: float = 0.0


class ResultCache:
    """Looks up cached answers, and stores those that were slow to find.

    `config_key` identifies the search configuration: answers of another configuration are not used.
    """

    def __init__(self, answers: AnswerCache, ledger: Ledger, *, config_key: str, min_s: float) -> None:
        self._answers = answers
        self._ledger = ledger
        self._config_key = config_key
        self._admission = CacheAdmission(min_s)
        self.lookup_cache: LookupCache | None = None

    @property
    def last_error(self) -> str:
        """The problem with Redis; empty if there is none."""
        return self._answers.last_error

    async def look_up(self, scope: Scope, request: str) -> CacheLookup:
        """Return the cached answer, if all its memories are unchanged."""
        started = perf_counter()
        if not self._admission.should_look_up or self._answers.is_unavailable:
            # Finding it takes no longer than looking, or looking is of no use; only the time is taken.
            return CacheLookup(started=started)
        revision = await self._ledger.revision(scope.user)
        key_parts = (self._config_key, scope.project, scope.session, revision.number, revision.epoch, request)
        key = CacheKey(scope.user, revision, blake2b(repr(key_parts).encode("utf-8", "surrogatepass")).hexdigest())
        stored = await self._answers.get(key)
        return CacheLookup(
            None if stored is None else await self._load_answer(scope, json.loads(stored)), key, started
        )

    async def _load_answer(self, scope: Scope, stored: dict[str, Any]) -> CachedAnswer | None:
        records = {record.id: record for record in await self._ledger.get(scope, [id for id, *_ in stored["hits"]])}
        moment = now()
        hits = [
            Hit(records[id], score, scores)
            for id, score, scores in stored["hits"]
            if id in records and is_valid_now(records[id], moment)
        ]
        # Something has ended since by itself: another may take its place.
        if len(hits) < len(stored["hits"]):
            return None
        return CachedAnswer(stored["query"], tuple(hits), (*stored["notes"], "found before"))

    def store(self, lookup: CacheLookup, answer: CachedAnswer) -> None:
        """Store an answer in the background if it was slow enough."""
        if not self._admission.should_store(perf_counter() - lookup.started) or lookup.key is None:
            return
        hits = [(hit.id, hit.score, dict(hit.scores)) for hit in answer.hits]
        stored = json.dumps({"query": answer.query, "hits": hits, "notes": answer.notes})
        self._answers.put_in_background(lookup.key, stored.encode())

    async def flush(self) -> None:
        """Wait until all pending answers are stored."""
        await self._answers.flush()

    async def forget(self, user: str) -> StoreErasure:
        """Drop all answers of a user after an erasure."""
        return await self._answers.forget(user, (await self._ledger.revision(user)).epoch)

    async def close(self) -> None:
        """Finish pending writes and close the connection to Redis."""
        await self._answers.close()


def request_key(messages: Sequence[Any], *options: object) -> str:
    """Return a text that identifies the question; empty if it cannot be identified."""
    try:
        return f"{json.dumps(list(messages))} {options!r}"
    except (TypeError, ValueError, RecursionError):
        return ""


_T = TypeVar("_T")
_CACHE = "lookup"
# More at once are hardly asked for again, and would keep others waiting while they are packed.
_MAX_RECORDS = 100
_MAX_BYTES = 256 << 10
# What accesses change without anything of the user's having changed.
_VOLATILE_FIELDS = ("access_count", "last_accessed_at")


class LookupCache:
    """Cached listings, counts and single memories, read from the ledger when missing."""

    def __init__(self, answers: AnswerCache, ledger: Ledger, *, min_s: float, single: bool) -> None:
        self._answers = answers
        self._ledger = ledger
        self._caches_single = single
        # A list can take long where one memory does not.
        self._admission = {kind: CacheAdmission(min_s) for kind in ("get", "find", "count")}

    async def get(self, scope: Scope, ids: Sequence[str]) -> list[MemoryRecord]:
        """Return the user's memories with these ids, in their order; unknown ids are skipped."""

        async def read() -> list[MemoryRecord]:
            return await self._ledger.get(scope, ids)

        if not self._caches_single:
            return await read()
        return await self._read_through("get", scope, list(ids), read, pack=_pack, unpack=_unpack)

    async def find(self, scope: Scope, listing: Listing) -> Page:
        """Return a page of the memories in the scope."""

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
        """Return the total number of memories in the listing."""

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
        """Return the value cached at this revision, or read it from the ledger."""
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
    """Return the records as plain values; None for too many or none, because unknown ids are unlimited."""
    return [record_to_row(record) for record in records] if 0 < len(records) <= _MAX_RECORDS else None


def _unpack(rows: Sequence[Any]) -> list[MemoryRecord]:
    if not rows:
        raise ValueError("no list without records is ever held")
    return [record_from_row(row) for row in rows]
