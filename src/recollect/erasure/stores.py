"""Erase for good, in every store that holds anything: the ledger first, then whatever was made from it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from recollect.aio import erasable_cache
from recollect.index.protocol import Index
from recollect.ledger.protocol import Ledger
from recollect.model.change import Author
from recollect.model.erasure import Erasure, ErasureRequest, Receipt, StoreErasure
from recollect.model.scope import Scope
from recollect.write import spill_file


class ClearableCache(Protocol):
    """Something that remembers what it was asked, and can be made to forget it."""

    def clear(self) -> int:
        """Forget all; gives how much that was."""
        ...


class UserCache(Protocol):
    """Something that holds what was found for users, and can be made to let go of one of them."""

    async def forget(self, user: str) -> StoreErasure:
        """Let go of all that is held of the user; what cannot be reached is told."""
        ...


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
    """Erase it from the ledger, the index, the caches of this process and the `spill` folder, where there is one.

    Once the ledger has let go of it nothing brings it back, whatever happens to the others: they are made from the
    ledger, and look at its epoch before they answer; and what was spilled before the erasure, on any machine, the
    ledger does not take any more. The receipt tells of each store.
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
    """Do those erasures again that the ledger, restored from an older copy, does not know of; a receipt for each."""
    receipts = await ledger.replay_erasures(erasures, by=by)
    return [await _clear_derived(each, index=index, embeddings=embeddings, answers=answers) for each in receipts]


async def _clear_derived(
    receipt: Receipt, *, index: Index, embeddings: ClearableCache | None, answers: UserCache | None
) -> Receipt:
    stores = [*receipt.stores, await index.forget(receipt.scope.user)]
    if answers is not None:
        stores.append(await answers.forget(receipt.scope.user))
    # These know nothing of whose words they hold, so all goes.
    if embeddings is not None:
        stores.append(StoreErasure("embedding cache", {"vectors": embeddings.clear()}))
    stores.append(StoreErasure("text caches", {"entries": erasable_cache.clear_all()}))
    return replace(receipt, stores=tuple(stores))
