"""Erasing: from every store there is, and what went with it though it rests on more than that is made again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from recollect import remember
from recollect.deps import Deps
from recollect.erasure import plan, stores
from recollect.errors import RecollectError, Unavailable
from recollect.model.change import Author
from recollect.model.erasure import Erasure, ErasureRequest, Receipt, StoreErasure
from recollect.model.memory import Category
from recollect.model.scope import Scope
from recollect.models.embedder_wrappers import CachedEmbedder
from recollect.read.result_cache import ResultCache
from recollect.remember import LearningConfig
from recollect.sessions import lifecycle
from recollect.write import spill_file

_log = logging.getLogger("recollect")
_SUMMARY_KINDS = (Category.EPISODE, Category.SUMMARY, "conversation")


class MirrorFiles(Protocol):
    """Files that mirror the ledger."""

    def start(self) -> None:
        """Go on mirroring until it is closed."""
        ...

    async def forget(self, user: str) -> StoreErasure:
        """Remove from the files what was erased of a user."""
        ...

    async def close(self) -> None:
        """Write out what is left."""
        ...


class ErasureService:
    """Removes something for good, with all that was derived from it alone."""

    def __init__(
        self, deps: Deps, learning: LearningConfig, *, spill: Path | None, result_cache: ResultCache | None
    ) -> None:
        self._deps = deps
        self._learning = learning
        self._spill = spill
        self._result_cache = result_cache
        embedder = deps.embedder
        self._embeddings = embedder if isinstance(embedder, CachedEmbedder) else None

    async def import_spilled(self, user: str) -> None:
        """Have in the ledger what a server here has spilled of the user, so that it is erased like the rest."""
        if self._spill is None:
            return
        waiting = await asyncio.to_thread(spill_file.spilled_turns_of, self._spill, user)
        for scope, received_at, messages in spill_file.group_by_arrival(waiting):
            by = Author("erase", "spilled")
            try:
                await remember.remember(scope, messages, self._deps, self._learning, by=by, received_at=received_at)
            except Unavailable:
                raise
            except RecollectError as error:
                # What the ledger never takes is overwritten where it is.
                _log.warning("%d spilled turns are not taken by the ledger: %s", len(messages), error)

    async def erase(self, scope: Scope, request: ErasureRequest, *, by: Author) -> Receipt:
        """Erase it in the ledger, the index, the caches and the spill folder; the receipt tells of each."""
        receipt = await stores.erase_from_stores(
            scope,
            await self._with_repetitions(scope, request),
            ledger=self._deps.ledger,
            index=self._deps.index,
            by=self._learning.redactor.redact_author(by),
            embeddings=self._embeddings,
            spill=self._spill,
            answers=self._result_cache,
        )
        await self._rebuild(receipt)
        return receipt

    async def _with_repetitions(self, scope: Scope, request: ErasureRequest) -> ErasureRequest:
        """Return what to erase with other turns that say the same: erased with a turn, forgotten with a memory."""
        records = await self._deps.ledger.get(Scope(scope.user), [request.id]) if request.id else []
        if not records:
            return request
        related = await plan.find_dependents(records, ledger=self._deps.ledger)
        turns = tuple(each.id for each in related if each.category is Category.TURN)
        is_turn = records[0].category is Category.TURN
        return replace(request, also=turns) if is_turn else replace(request, hide=turns)

    async def replay(self, erasures: Sequence[Erasure], *, by: Author) -> list[Receipt]:
        """Do those erasures again that this ledger does not know of."""
        receipts = await stores.replay_in_stores(
            erasures,
            ledger=self._deps.ledger,
            index=self._deps.index,
            by=by,
            embeddings=self._embeddings,
            answers=self._result_cache,
        )
        for receipt in receipts:
            await self._rebuild(receipt)
        return receipts

    async def _rebuild(self, receipt: Receipt) -> None:
        """Have that made again which went though some of what it rested on stays."""
        for remade in receipt.remade:
            if (job := lifecycle.rebuild_job(remade)) is not None:
                await self._deps.ledger.enqueue(remade.scope, [job], existing_only=True)
        source_ids = {id for lost in receipt.remade if lost.kind not in _SUMMARY_KINDS for id in lost.sources}
        if source_ids and self._learning.by != "off":
            # Other turns say it, too.
            await remember.relearn_turns(receipt.scope.user, sorted(source_ids), self._deps)
