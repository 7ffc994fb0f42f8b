"""pgvector as an engine: it searches the ledger's own vectors, so nobody has to feed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recollect.errors import IndexUnavailable, InvalidSettings, Unavailable
from recollect.index.engine_index import EngineIndex
from recollect.index.protocol import Index
from recollect.ledger.protocol import Ledger, Scored
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from recollect.ledger.postgres_near import Near
    from recollect.model.change import Vector


class PgvectorEngine:
    """Finds the nearest of a user's rows inside PostgreSQL."""

    def __init__(self, near: Near) -> None:
        self.near = near

    @property
    def name(self) -> str:
        return f"pgvector at {self.near.where}"

    async def nearest(self, user: str, vector: Vector, *, places: Sequence[str], limit: int) -> Scored:
        try:
            return await self.near.nearest(user, vector, places=places, limit=limit)
        except IndexUnavailable:
            raise
        except Unavailable as error:
            raise IndexUnavailable(str(error)) from error

    async def close(self) -> None:
        await self.near.close()


def open_pgvector(ledger: Ledger, model: EmbeddingModel) -> PgvectorEngine:
    """The engine over the vectors of a ledger in PostgreSQL."""
    from recollect.ledger.sql.ledger import SqlLedger

    if not isinstance(ledger, SqlLedger) or ledger.engine.dialect.name != "postgres":
        raise InvalidSettings("pgvector searches a ledger in PostgreSQL: set database to a postgresql:// address")
    from recollect.ledger.postgres import PostgresEngine
    from recollect.ledger.postgres_near import Near

    assert isinstance(ledger.engine, PostgresEngine)
    return PgvectorEngine(Near(ledger.engine, model))


def near_of(index: Index) -> Near | None:
    """What makes vectors ready for pgvector, if that is what the index asks."""
    if isinstance(index, EngineIndex) and isinstance(index.engine, PgvectorEngine):
        return index.engine.near
    return None
