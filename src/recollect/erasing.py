"""Erasing: from every store there is, and what went with it though it rests on more than that is made again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from recollect import remember
from recollect.conversation import afterwards
from recollect.errors import RecollectError, Unavailable
from recollect.model.change import By
from recollect.model.erase import Cleared, Erase, Erasure, Receipt
from recollect.model.memory import Category
from recollect.model.scope import Scope
from recollect.models.cached_embedder import CachedEmbedder
from recollect.read.again import Again
from recollect.remember import Learning
from recollect.upkeep import erase, forgetting, spilled
from recollect.write.deps import Deps

_log = logging.getLogger("recollect")
_SUMMED = (Category.EPISODE, Category.SUMMARY, "conversation")


class Mirrored(Protocol):
    """Files that mirror the ledger."""

    def start(self) -> None:
        """Go on mirroring until it is closed."""
        ...

    async def forget(self, user: str) -> Cleared:
        """Remove from the files what was erased of a user."""
        ...

    async def close(self) -> None:
        """Write out what is left."""
        ...


class Erasing:
    """Removes something for good, with all that was derived from it alone."""

    def __init__(self, means: Deps, learning: Learning, *, spill: Path | None, again: Again | None) -> None:
        self._means = means
        self._learning = learning
        self._spill = spill
        self._again = again
        embedder = means.embedder
        self._embeddings = embedder if isinstance(embedder, CachedEmbedder) else None

    async def bring_in_spilled(self, user: str) -> None:
        """Have in the ledger what a server here has spilled of the user, so that it is erased like the rest."""
        if self._spill is None:
            return
        waiting = await asyncio.to_thread(spilled.of_user, self._spill, user)
        for scope, given_at, messages in spilled.as_given(waiting):
            by = By("erase", "spilled")
            try:
                await remember.remember(scope, messages, self._means, self._learning, by=by, given_at=given_at)
            except Unavailable:
                raise
            except RecollectError as error:
                # What the ledger never takes is overwritten where it is.
                _log.warning("%d spilled turns are not taken by the ledger: %s", len(messages), error)

    async def erase(self, scope: Scope, what: Erase, *, by: By) -> Receipt:
        """Erase it in the ledger, the index, the caches and the spill folder; the receipt tells of each."""
        receipt = await erase.erase(
            scope,
            await self._with_repetitions(scope, what),
            ledger=self._means.ledger,
            index=self._means.index,
            by=self._learning.redacting.by(by),
            embeddings=self._embeddings,
            spill=self._spill,
            answers=self._again,
        )
        await self._make_anew(receipt)
        return receipt

    async def _with_repetitions(self, scope: Scope, what: Erase) -> Erase:
        """Return what to erase with other turns that say the same: erased with a turn, forgotten with a memory."""
        records = await self._means.ledger.get(Scope(scope.user), [what.id]) if what.id else []
        if not records:
            return what
        found = await forgetting.related(records, ledger=self._means.ledger)
        turns = tuple(each.id for each in found if each.category is Category.TURN)
        is_turn = records[0].category is Category.TURN
        return replace(what, also=turns) if is_turn else replace(what, hide=turns)

    async def replay(self, erasures: Sequence[Erasure], *, by: By) -> list[Receipt]:
        """Do those erasures again that this ledger does not know of."""
        receipts = await erase.replay(
            erasures,
            ledger=self._means.ledger,
            index=self._means.index,
            by=by,
            embeddings=self._embeddings,
            answers=self._again,
        )
        for receipt in receipts:
            await self._make_anew(receipt)
        return receipts

    async def _make_anew(self, receipt: Receipt) -> None:
        """Have that made again which went though some of what it rested on stays."""
        for remade in receipt.remade:
            if (job := afterwards.remaking(remade)) is not None:
                await self._means.ledger.enqueue(remade.scope, [job], known_only=True)
        told = {id for lost in receipt.remade if lost.kind not in _SUMMED for id in lost.sources}
        if told and self._learning.by != "off":
            # Other turns say it, too.
            await remember.learn_again(receipt.scope.user, sorted(told), self._means)
