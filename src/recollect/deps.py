"""The dependencies of the write path."""

from __future__ import annotations

from recollect.frozen_dataclass import frozen_dataclass
from recollect.index.protocol import Index
from recollect.ledger.ledger import Ledger
from recollect.models.chat import Chat
from recollect.models.embedding import Embedder


@frozen_dataclass
class Deps:
    """The ledger, the index, the embedder, and the chat model, if configured."""

    ledger: Ledger
    index: Index
    embedder: Embedder
    chat: Chat | None = None
