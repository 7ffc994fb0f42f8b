"""pgvector as an engine: it searches the ledger's own vectors, so nobody has to feed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recollect.errors import IndexUnavailable, InvalidSettings, Unavailable
from recollect.index.protocol import Index
from recollect.index.vector_store_index import VectorStoreIndex
from recollect.ledger.ledger import Ledger
from recollect.ledger.types import ScoredRows
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from recollect.ledger.postgres_pgvector import HnswIndex
    from recollect.model.change import Vector


class PgvectorStore:
    """Finds the nearest of a user's rows inside PostgreSQL."""

    def __init__(self, hnsw_index: HnswIndex) -> None:
        self.hnsw_index = hnsw_index

    @property
    def name(self) -> str:
        return f"pgvector at {self.hnsw_index.where}"

    async def nearest(self, user: str, vector: Vector, *, places: Sequence[str], limit: int) -> ScoredRows:
        try:
            return await self.hnsw_index.nearest(user, vector, places=places, limit=limit)
        except IndexUnavailable:
            raise
        except Unavailable as error:
            raise IndexUnavailable(str(error)) from error

    async def close(self) -> None:
        await self.hnsw_index.close()


def open_pgvector(ledger: Ledger, model: EmbeddingModel) -> PgvectorStore:
    """The engine over the vectors of a ledger in PostgreSQL."""
    if ledger.engine.dialect.name != "postgres":
        raise InvalidSettings("pgvector searches a ledger in PostgreSQL: set database to a postgresql:// address")
    from recollect.ledger.postgres import PostgresEngine
    from recollect.ledger.postgres_pgvector import HnswIndex

    assert isinstance(ledger.engine, PostgresEngine)
    return PgvectorStore(HnswIndex(ledger.engine, model))


def hnsw_index_of(index: Index) -> HnswIndex | None:
    """What makes vectors ready for pgvector, if that is what the index asks."""
    if isinstance(index, VectorStoreIndex) and isinstance(index.store, PgvectorStore):
        return index.store.hnsw_index
    return None
