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
from recollect.ledger.sql.records import as_row, from_row
from recollect.model.memory import MemoryRecord
from recollect.model.query import Listing
from recollect.model.result import Page
from recollect.model.scope import Scope
from recollect.read.again import Worth
from recollect.shared.answers import Answers, Place

_T = TypeVar("_T")
_CACHE = "lookup"
# More at once are hardly asked for again, and would keep others waiting while they are packed.
_MOST_RECORDS = 100
_MOST_BYTES = 256 << 10
# What accesses change without anything of the user's having changed.
_COUNTED = ("access_count", "last_accessed_at")


class Lookups:
    """Memories in lists, how many there are, and `single` ones: as the ledger tells them, or told before."""

    def __init__(self, answers: Answers, ledger: Ledger, *, from_s: float, single: bool) -> None:
        self._answers = answers
        self._ledger = ledger
        self._single = single
        # A list can take long where one memory does not.
        self._worth = {kind: Worth(from_s) for kind in ("get", "find", "count")}

    async def get(self, scope: Scope, ids: Sequence[str]) -> list[MemoryRecord]:
        """The user's memories of these ids, in their order; ids that are not theirs are left out."""

        async def read() -> list[MemoryRecord]:
            return await self._ledger.get(scope, ids)

        if not self._single:
            return await read()
        return await self._told("get", scope, list(ids), read, pack=_pack, unpack=_unpack)

    async def find(self, scope: Scope, listing: Listing) -> Page:
        """Some of the memories in the scope, in order, and where to go on."""

        async def read() -> Page:
            return await self._ledger.find(scope, listing)

        def pack(page: Page) -> Any:
            rows = _pack(page.records)
            return None if rows is None else [rows, page.cursor]

        def unpack(held: Any) -> Page:
            rows, cursor = held
            return Page(tuple(_unpack(rows)), cursor)

        return await self._told("find", scope, listing, read, pack=pack, unpack=unpack)

    async def count(self, scope: Scope, listing: Listing) -> int:
        """How many memories the listing has in all."""

        async def read() -> int:
            return await self._ledger.count(scope, listing)

        return await self._told("count", scope, listing, read, pack=int, unpack=int)

    async def _told(
        self,
        kind: str,
        scope: Scope,
        asked: object,
        read: Callable[[], Awaitable[_T]],
        *,
        pack: Callable[[_T], Any],
        unpack: Callable[[Any], _T],
    ) -> _T:
        """What was told before at this revision, else what the ledger tells now."""
        worth, place = self._worth[kind], None
        if worth.is_looking and not self._answers.is_away:
            place = await self._place(kind, scope, repr(asked))
        held = await self._answers.get(place, cache=_CACHE) if place is not None else None
        if held is not None:
            try:
                return unpack(json.loads(held))
            except (ValueError, TypeError, KeyError):
                # Not what we put there: it is read as if nothing were.
                pass
        begun = perf_counter()
        found = await read()
        if worth.is_keeping(perf_counter() - begun) and place is not None:
            packed = pack(found)
            held = b"" if packed is None else json.dumps(packed).encode()
            if 0 < len(held) <= _MOST_BYTES:
                self._answers.put_behind(place, held)
        return found

    async def _place(self, kind: str, scope: Scope, told: str) -> Place | None:
        if any(name in told for name in _COUNTED):
            return None
        revision = await self._ledger.revision(scope.user)
        whole = (__version__, _CACHE, kind, scope.project, scope.session, revision.number, revision.epoch, told)
        return Place(scope.user, revision, blake2b(repr(whole).encode("utf-8", "surrogatepass")).hexdigest())


def _pack(records: Sequence[MemoryRecord]) -> list[Any] | None:
    """Records as plain values; None for too many, and for none, since an unknown id may be any of very many."""
    return [as_row(record) for record in records] if 0 < len(records) <= _MOST_RECORDS else None


def _unpack(rows: Sequence[Any]) -> list[MemoryRecord]:
    if not rows:
        raise ValueError("no list without records is ever held")
    return [from_row(row) for row in rows]
