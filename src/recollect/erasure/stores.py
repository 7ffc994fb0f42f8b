"""Erase from every store: the ledger first, then whatever was derived from it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from recollect.aio import erasable_cache
from recollect.index.protocol import Index
from recollect.ledger.ledger import Ledger
from recollect.model.change import Author
from recollect.model.erasure import Erasure, ErasureRequest, Receipt, StoreErasure
from recollect.model.scope import Scope
from recollect.write import spill_file


class ClearableCache(Protocol):
    """A cache that can be cleared."""

    def clear(self) -> int:
        """Remove all entries; return how many."""


class UserCache(Protocol):
    """A cache of results for users, of whom one can be removed."""

    async def forget(self, user: str) -> StoreErasure:
        """Remove all entries of the user; report what could not be reached."""


async def erase_from_stores(
    scope: Scope,
    what: ErasureRequest,
    *,
    ledger: Ledger,
    index: Index,
    by: Author,
    embeddings: ClearableCache | None = None,
    spill: Path | None = None,
    answers: UserCache | None = None,
) -> Receipt:
    """Erase from the ledger, the index, the caches of this process and the `spill` folder, if there is one.

    Once the ledger has erased it nothing brings it back: the other stores are derived from the ledger and check its
    epoch before they answer, and the ledger refuses what was spilled before the erasure. The receipt reports each
    store.
    """
    receipt = await ledger.erase(scope, what, by=by)
    receipt = await _clear_derived(receipt, index=index, embeddings=embeddings, answers=answers)
    if spill is None or not await asyncio.to_thread(spill.is_dir):
        return receipt
    return replace(
        receipt, stores=(*receipt.stores, await asyncio.to_thread(spill_file.erase_spilled, spill, scope, what))
    )


async def replay_in_stores(
    erasures: Sequence[Erasure],
    *,
    ledger: Ledger,
    index: Index,
    by: Author,
    embeddings: ClearableCache | None = None,
    answers: UserCache | None = None,
) -> list[Receipt]:
    """Repeat the erasures that a ledger restored from an older copy has no record of; return a receipt for each."""
    receipts = await ledger.replay_erasures(erasures, by=by)
    return [await _clear_derived(each, index=index, embeddings=embeddings, answers=answers) for each in receipts]


async def _clear_derived(
    receipt: Receipt, *, index: Index, embeddings: ClearableCache | None, answers: UserCache | None
) -> Receipt:
    stores = [*receipt.stores, await index.forget(receipt.scope.user)]
    if answers is not None:
        stores.append(await answers.forget(receipt.scope.user))
    # These do not know the user of an entry, so they are cleared as a whole.
    if embeddings is not None:
        stores.append(StoreErasure("embedding cache", {"vectors": embeddings.clear()}))
    stores.append(StoreErasure("text caches", {"entries": erasable_cache.clear_all()}))
    return replace(receipt, stores=tuple(stores))
