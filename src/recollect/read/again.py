"""Give again what was found for the same question while nothing of the user's has changed, where that saves time.

Redis holds ids, scores and the question as it was completed; the memories themselves are always read from the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from time import perf_counter
from typing import TYPE_CHECKING, Any

from recollect.ledger.protocol import Ledger
from recollect.model.erase import Cleared
from recollect.model.result import Hit
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.validity import holds_now
from recollect.shared.answers import Answers, Place

if TYPE_CHECKING:
    from recollect.read.lookups import Lookups

# How the longest time that something took fades with each that took less: one slow question in some hundred is
# enough for looking to be worth it.
_FADES = 0.98


class Worth:
    """Whether things of a kind take so long to find that it is worth looking whether they were found before."""

    def __init__(self, from_s: float) -> None:
        self._from_s = from_s
        self._slowest_s = from_s * 4

    @property
    def is_looking(self) -> bool:
        """Whether some of them took so long of late."""
        return self._slowest_s >= self._from_s

    def is_keeping(self, took_s: float) -> bool:
        """Note how long one took to find; gives whether it is worth keeping."""
        self._slowest_s = max(took_s, self._slowest_s * _FADES)
        return took_s >= self._from_s


@dataclass(frozen=True, slots=True)
class Found:
    """What a question came to: its words as they were completed, the hits, and notes on the way."""

    query: str = ""
    hits: tuple[Hit, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """What was found before, if anything; else where to put what is found now."""

    found: Found | None = None
    place: Place | None = None
    begun: float = 0.0


class Again:
    """Looks whether a question was answered before, and keeps answers that took long to find.

    `ways` says by what means and habits is searched: answers found in other ways are others. `lookups` does the same
    for memories that are looked up.
    """

    def __init__(self, answers: Answers, ledger: Ledger, *, ways: str, from_s: float) -> None:
        self._answers = answers
        self._ledger = ledger
        self._ways = ways
        self._worth = Worth(from_s)
        self.lookups: Lookups | None = None

    @property
    def trouble(self) -> str:
        """What is wrong with Redis; empty if nothing is."""
        return self._answers.trouble

    async def look(self, scope: Scope, asked: str) -> Look:
        """What was found for this before, of memories that still hold."""
        begun = perf_counter()
        if not self._worth.is_looking or self._answers.is_away:
            # Finding it takes no longer than looking, or looking is of no use; only the time is taken.
            return Look(begun=begun)
        revision = await self._ledger.revision(scope.user)
        told = (self._ways, scope.project, scope.session, revision.number, revision.epoch, asked)
        place = Place(scope.user, revision, blake2b(repr(told).encode("utf-8", "surrogatepass")).hexdigest())
        held = await self._answers.get(place)
        return Look(None if held is None else await self._read(scope, json.loads(held)), place, begun)

    async def _read(self, scope: Scope, held: dict[str, Any]) -> Found | None:
        records = {record.id: record for record in await self._ledger.get(scope, [id for id, *_ in held["hits"]])}
        moment = now()
        hits = [
            Hit(records[id], score, scores)
            for id, score, scores in held["hits"]
            if id in records and holds_now(records[id], moment)
        ]
        # Something has ended since by itself: another may take its place.
        if len(hits) < len(held["hits"]):
            return None
        return Found(held["query"], tuple(hits), (*held["notes"], "found before"))

    def keep(self, look: Look, found: Found) -> None:
        """Keep what was found, behind the answer, if that took long enough to be worth it."""
        if not self._worth.is_keeping(perf_counter() - look.begun) or look.place is None:
            return
        hits = [(hit.id, hit.score, dict(hit.scores)) for hit in found.hits]
        held = json.dumps({"query": found.query, "hits": hits, "notes": found.notes})
        self._answers.put_behind(look.place, held.encode())

    async def settled(self) -> None:
        """Wait until all that is worth keeping is kept."""
        await self._answers.settled()

    async def forget(self, user: str) -> Cleared:
        """Let go of all that is held of a user, whose memories were erased."""
        return await self._answers.forget(user, (await self._ledger.revision(user)).epoch)

    async def close(self) -> None:
        """Let what is under way end, and let go of Redis."""
        await self._answers.close()


def told(messages: Sequence[Any], *more: object) -> str:
    """A question as one text, the same for the same question only; empty if it cannot be told apart from others."""
    try:
        return f"{json.dumps(list(messages))} {more!r}"
    except (TypeError, ValueError, RecursionError):
        return ""
