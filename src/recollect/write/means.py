"""What writing is done with."""

from __future__ import annotations

from dataclasses import dataclass

from recollect.index.protocol import Index
from recollect.ledger.protocol import Ledger
from recollect.models.chat import Chat
from recollect.models.embedding import Embedder


@dataclass(frozen=True, slots=True)
class Means:
    """What writing needs: the ledger, the index for neighbours, an embedder, and a chat model if there is one."""

    ledger: Ledger
    index: Index
    embedder: Embedder
    chat: Chat | None = None
