"""Erase for good, in every store that holds anything: the ledger first, then whatever was made from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from recollect.index.protocol import Index
from recollect.ledger.protocol import Ledger
from recollect.model.change import By
from recollect.model.erase import Cleared, Erase, Receipt
from recollect.model.scope import Scope


class Clears(Protocol):
    """Something that remembers what it was asked, and can be made to forget it."""

    def clear(self) -> int:
        """Forget all; gives how much that was."""
        ...


async def erase(
    scope: Scope, what: Erase, *, ledger: Ledger, index: Index, by: By, embeddings: Clears | None = None
) -> Receipt:
    """Erase it from the ledger, the index and the cache of `embeddings`, if any; the receipt tells of each store.

    Once the ledger has let go of it nothing brings it back, whatever happens to the others: they are made from the
    ledger, and look at its epoch before they answer.
    """
    receipt = await ledger.erase(scope, what, by=by)
    stores = [*receipt.stores, await index.forget(scope.user)]
    if embeddings is not None:
        # It knows texts by their hashes only, so it cannot tell which of them are concerned.
        stores.append(Cleared("embedding cache", {"vectors": embeddings.clear()}))
    return replace(receipt, stores=tuple(stores))
