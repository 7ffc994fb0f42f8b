"""Permanent removal from every store, and the rebuilding of records that have other sources, too."""

from __future__ import annotations

import asyncio
import builtins
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from recollect import remember
from recollect.aio import erasable_cache
from recollect.deps import Deps
from recollect.erasure import find_dependents
from recollect.errors import RecollectError, Unavailable
from recollect.model.change import Author
from recollect.model.erasure import Erasure, ErasureRequest, Receipt, StoreErasure, Target
from recollect.model.memory import Category
from recollect.model.scope import Scope
from recollect.models.embedder_wrappers import CachedEmbedder
from recollect.read.result_cache import ResultCache
from recollect.remember import LearningConfig
from recollect.service.jobs import LearningModels, with_chat_model
from recollect.sessions import lifecycle
from recollect.sessions.lifecycle import retract_turns
from recollect.write import spill_file

_log = logging.getLogger("recollect")
_SUMMARY_KINDS = (Category.EPISODE, Category.SUMMARY, "conversation")


class MirrorFiles(Protocol):
    """Files that mirror the ledger."""

    def start(self) -> None:
        """Mirror changes until it is closed."""

    async def sync(self) -> object:
        """Synchronise files and ledger once; raise StoreBusy if another process mirrors them."""

    async def forget(self, user: str) -> StoreErasure:
        """Remove the erased data of a user from the files."""

    async def close(self) -> None:
        """Write pending changes."""


class ErasureService:
    """Erase data with everything derived from it alone, and list and replay erasures."""

    def __init__(
        self,
        deps: Deps,
        learning: LearningConfig,
        *,
        spill: Path | None,
        result_cache: ResultCache | None,
        models: LearningModels | None,
        on_erased: Callable[[Receipt], Awaitable[Receipt]],
    ) -> None:
        self._deps = deps
        self._learning = learning
        self._spill = spill
        self._result_cache = result_cache
        self._models = models
        self._on_erased = on_erased

    async def erase(self, scope: Scope, request: ErasureRequest, *, by: Author) -> Receipt:
        """Erase in the ledger, the index, the caches, the spill folder and the mirror; the receipt lists each."""
        request.check(scope)
        await self.import_spilled(scope.user)
        if request.target is Target.SESSION:
            await lifecycle.require_session(scope, ledger=self._deps.ledger)
        request = await self._with_repetitions(scope, request)
        receipt = await self._deps.ledger.erase(scope, request, by=self._learning.redactor.redact_author(by))
        # Nothing brings it back from here on: the other stores are derived from the ledger and check its epoch before
        # they answer, and the ledger refuses what was spilled before.
        receipt = await self._clear_derived(receipt)
        if (spill := self._spill) is not None and await asyncio.to_thread(spill.is_dir):
            spilled = await asyncio.to_thread(spill_file.erase_spilled, spill, scope, request)
            receipt = replace(receipt, stores=(*receipt.stores, spilled))
        await self._rebuild(receipt)
        hidden = await self._deps.ledger.get(Scope(scope.user), receipt.hidden) if receipt.hidden else []
        await retract_turns(hidden, self._deps)
        return await self._on_erased(receipt)

    async def list(self, since: datetime | None = None) -> builtins.list[Erasure]:
        """Return past erasures of all users, oldest first, to be replayed on an older copy."""
        return await self._deps.ledger.erasures(since)

    async def replay(self, erasures: Sequence[Erasure], *, by: Author) -> builtins.list[Receipt]:
        """Repeat the erasures that this ledger, restored from an older copy, does not have."""
        replayed = await self._deps.ledger.replay_erasures(erasures, by=by)
        receipts = [await self._clear_derived(receipt) for receipt in replayed]
        for receipt in receipts:
            await self._rebuild(receipt)
        return [await self._on_erased(receipt) for receipt in receipts]

    async def _clear_derived(self, receipt: Receipt) -> Receipt:
        """Erase from the index and the caches of this process."""
        user, embedder = receipt.scope.user, self._deps.embedder
        stores = [*receipt.stores, await self._deps.index.forget(user)]
        if self._result_cache is not None:
            stores.append(await self._result_cache.forget(user))
        # These do not know the user of an entry, so they are cleared as a whole.
        if isinstance(embedder, CachedEmbedder):
            stores.append(StoreErasure("embedding cache", {"vectors": embedder.clear()}))
        stores.append(StoreErasure("text caches", {"entries": erasable_cache.clear_all()}))
        return replace(receipt, stores=tuple(stores))

    async def import_spilled(self, user: str) -> None:
        """Import the turns of the user that a server on this machine spilled, so that they are erased too."""
        if self._spill is None:
            return
        waiting = await asyncio.to_thread(spill_file.spilled_turns_of, self._spill, user)
        for group in spill_file.group_by_arrival(waiting):
            first, messages = group[0], [each.message for each in group]
            try:
                await remember.remember(
                    first.scope,
                    messages,
                    self._deps,
                    with_chat_model(self._learning, first.model, self._models),
                    by=Author("erase", "spilled"),
                    mode=first.mode,
                    received_at=first.received_at,
                )
            except Unavailable:
                raise
            except RecollectError as error:
                # Turns that the ledger rejects are overwritten in the spill file.
                _log.warning("the ledger rejects %d spilled turns: %s", len(messages), error)

    async def _with_repetitions(self, scope: Scope, request: ErasureRequest) -> ErasureRequest:
        """Return the request with turns that say the same: erased with a turn, forgotten with a memory."""
        records = await self._deps.ledger.get(Scope(scope.user), [request.id]) if request.id else []
        if not records:
            return request
        related = await find_dependents(records, ledger=self._deps.ledger)
        turns = tuple(each.id for each in related if each.category is Category.TURN)
        is_turn = records[0].category is Category.TURN
        return replace(request, also=turns) if is_turn else replace(request, hide=turns)

    async def _rebuild(self, receipt: Receipt) -> None:
        """Enqueue jobs that rebuild removed records from their remaining sources."""
        for remade in receipt.remade:
            if (job := lifecycle.rebuild_job(remade)) is not None:
                await self._deps.ledger.enqueue(remade.scope, [job], existing_only=True)
        source_ids = {id for lost in receipt.remade if lost.kind not in _SUMMARY_KINDS for id in lost.sources}
        if source_ids and self._learning.by != "off":
            await remember.relearn_turns(receipt.scope.user, sorted(source_ids), self._deps)
