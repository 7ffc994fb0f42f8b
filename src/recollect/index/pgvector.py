"""Nearest vectors of a user by pgvector, prepared in the background for users with many vectors.

Small users are searched faster in memory, so only large users' vectors are converted and indexed: others pay neither
the space nor the time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from recollect.errors import (
    IndexNotReady,
    IndexUnavailable,
    InvalidSettings,
    RecollectError,
    StoreUnavailable,
    Unavailable,
    Unsupported,
)
from recollect.frozen_dataclass import frozen_dataclass
from recollect.index import pgvector_sql as sql
from recollect.index.protocol import Index
from recollect.index.vector_store_index import VectorStoreIndex
from recollect.ledger.ledger import Ledger
from recollect.ledger.sql.tx import ALL_TENANTS, NO_TENANT, Row, Tx
from recollect.ledger.sql.vectors import model_number
from recollect.ledger.types import ScoredRows
from recollect.model.change import Vector
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from recollect.ledger.postgres import PostgresEngine


_log = logging.getLogger("recollect")
Progress = Callable[[int, int], None]
# Rows per transaction: a user's writers wait for one batch at most.
FILL_BATCH = 500
_POLL_S = 1.0
_RETRY_S = 30.0
# The timeout for a lock on the table, and the number of attempts.
_LOCK_MS, _TRIES = 500, 120
_BUILD_MEMORY = "SELECT set_config('maintenance_work_mem', '256MB', false) WHERE pg_size_bytes(current_setting("
_BUILD_MEMORY += "'maintenance_work_mem')) < 256 << 20"


@frozen_dataclass
class PgvectorState:
    """Whether pgvector can be used, why not, and for how many users it is."""

    version: str
    trouble: str
    users: int = 0
    is_indexed: bool = False


class PgvectorStore:
    """Searches the ledger's own vectors, if the user's are indexed; other users are prepared when first searched."""

    def __init__(self, engine: PostgresEngine, model: EmbeddingModel) -> None:
        self._engine = engine
        self._model = model
        self._number: int | None = None
        self._pending_users: dict[str, None] = {}
        self._build_task: asyncio.Task[None] | None = None
        self._trouble = ""

    @property
    def name(self) -> str:
        """Return pgvector and the address of the database, without its password."""
        return f"pgvector at {self._engine.where}"

    async def nearest(self, user: str, vector: Vector, *, places: Sequence[str], limit: int) -> ScoredRows:
        """Return the nearest active rows of the user in these places; raise IndexNotReady while they are prepared."""
        try:
            number = await self._model_number()
            matches = await self._find(number, user, vector, places=places, limit=limit) if number else None
        except Unavailable as error:
            raise IndexUnavailable(str(error)) from error
        if matches is None:
            self.request_build(user)
            if self._trouble:
                raise IndexUnavailable(self._trouble)
            raise IndexNotReady("this user's vectors are not ready for pgvector yet")
        rows = np.array([row[0] for row in matches], np.int64)
        scores = np.array([row[1] for row in matches], np.float32)
        order = np.lexsort((rows, -scores))
        return ScoredRows(rows[order], np.clip(scores[order], 0, 1))

    async def _find(
        self, number: int, user: str, vector: Vector, *, places: Sequence[str], limit: int
    ) -> Sequence[Row] | None:
        """Return rows with their scores, or None if the user's vectors are not indexed."""
        params = {"user": user, "model": number, "places": list(places), "limit": limit}
        params["vector"] = str(vector.tolist())

        async def find(tx: Tx) -> Sequence[Row] | None:
            ready = await tx.rows(sql.READY, params)
            if not ready or not ready[0][0]:
                return None
            matches = await tx.rows(sql.nearest(number, self._model.dimensions), params)
            if len(matches) < limit:
                # Few of the nearest rows are visible from these places.
                await tx.rows(sql.EXACT_SCAN, {})
                matches = await tx.rows(sql.nearest_exact(number), params)
            return matches

        return await self._engine.read(find, tenant=user)

    async def _model_number(self) -> int:
        if self._number is None:
            self._number = await self._engine.read(
                lambda tx: model_number(tx, self._model), tenant=NO_TENANT, quick=True
            )
        return self._number or 0

    def request_build(self, user: str) -> None:
        """Prepare a user's vectors in the background."""
        self._pending_users[user] = None
        if self._build_task is None:
            self._build_task = asyncio.create_task(self._build_pending())

    async def _build_pending(self) -> None:
        """Prepare users until none waits; together, because one build of an index is faster than many inserts."""
        try:
            while users := list(self._pending_users):
                await self.make_ready(users)
                for user in users:
                    del self._pending_users[user]
        except Unsupported as error:
            if not self._trouble:
                _log.warning("pgvector is not used: %s", error)
            self._trouble = str(error)
            await asyncio.sleep(_RETRY_S)
        except RecollectError as error:
            _log.warning("pgvector: preparing vectors failed, to be retried: %s", error)
            await asyncio.sleep(_RETRY_S)
        finally:
            self._pending_users.clear()
            self._build_task = None

    async def make_ready(self, users: Sequence[str], progress: Progress = lambda done, of: None) -> None:
        """Index the vectors of these users; wait for another process that is doing so."""
        number = await self._model_number()
        if not number:
            # There is no vector of this model.
            return
        async with self._exclusive_connection() as connection:
            await prepare(connection, self._model)
            await self._fill_and_build(connection, users, number, progress)
        self._trouble = ""

    async def rebuild(self, *, large: int, progress: Progress = lambda done, of: None) -> int:
        """Rebuild all data of pgvector for users with at least `large` vectors; return how many rows those are."""
        number = await self._model_number()
        if not number:
            return 0
        async with self._exclusive_connection() as connection:
            await prepare(connection, self._model)
            for (name,) in await connection.fetch(sql.OLD_INDEXES, number):
                await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
            await connection.execute(sql.FORGET, number)
            await connection.execute(sql.EMPTY, number)
            users = [row[0] for row in await connection.fetch(sql.LARGE, number, large)]
            await self._fill_and_build(connection, users, number, progress)
            return int(await connection.fetchval(sql.TOTAL, number))

    async def _fill_and_build(self, connection: Any, users: Sequence[str], number: int, progress: Progress) -> None:
        for user in users:
            await connection.execute(sql.ENROL, user, number)
            total = await connection.fetchval(
                "SELECT count(*) FROM vectors WHERE user_id = $1 AND model = $2", user, number
            )
            done, after = 0, -1
            while filled := await connection.fetch(sql.FILL, user, number, after, FILL_BATCH):
                done, after = done + len(filled), max(row[0] for row in filled)
                progress(min(done, total), total)
        await _build(self._engine, connection, (number, self._model.dimensions), progress)
        # Only now, or they would be searched without an index.
        for user in users:
            await connection.execute(sql.FILLED, user, number)

    async def verify(self) -> list[tuple[str, int, int]]:
        """Return, for each indexed user, the number of vectors and how many of them are missing or wrong."""
        number = await self._model_number()
        async with self._engine.dedicated_connection(ALL_TENANTS) as connection:
            await connection.execute("SET statement_timeout = 0")
            if (await _detect_pgvector(connection, self._model))[1] or not await connection.fetchval(sql.PREPARED):
                return []
            return [tuple(row) for row in await connection.fetch(sql.MISMATCHES, number)]

    async def state(self) -> PgvectorState:
        """Return the state of pgvector without changing anything."""
        number = await self._model_number()
        async with self._engine.dedicated_connection(ALL_TENANTS) as connection:
            version, trouble = await _detect_pgvector(connection, self._model)
            if trouble:
                return PgvectorState(version, trouble)
            users = await connection.fetchval("SELECT count(*) FROM users WHERE $1::bigint = ANY (near)", number)
            missing = await _missing(connection, number)
        return PgvectorState(version, "", users, not missing)

    @asynccontextmanager
    async def _exclusive_connection(self) -> AsyncIterator[Any]:
        """Open a connection while no other process prepares anything."""
        async with self._engine.dedicated_connection(ALL_TENANTS) as connection:
            # Polled, because an index build does not finish while another session waits in a statement.
            while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", sql.BUILDING):  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)
            await connection.execute("SET statement_timeout = 0; SET idle_session_timeout = 0")
            await connection.execute(_BUILD_MEMORY)
            yield connection

    async def close(self) -> None:
        """Cancel the background build, which can be continued later."""
        if self._build_task is not None:
            self._build_task.cancel()
            await asyncio.wait([self._build_task])


async def _detect_pgvector(connection: Any, model: EmbeddingModel) -> tuple[str, str]:
    """Return the version of pgvector, and why it cannot be used, if so."""
    if model.dimensions > sql.MAX_DIMENSIONS:
        return "", f"pgvector has no index for more than {sql.MAX_DIMENSIONS} dimensions, and {model} has more"
    version = await connection.fetchval(sql.INSTALLED)
    if version is None:
        offered = await connection.fetchval(sql.OFFERED)
        remedy = (
            "have a superuser run: CREATE EXTENSION vector" if offered else "install it on the server of PostgreSQL"
        )
        return "", f"the database has no pgvector: {remedy}; until then search is exact, in memory"
    if tuple(int(part) for part in version.split(".")[:2]) < sql.MIN_VERSION:
        oldest = ".".join(map(str, sql.MIN_VERSION))
        return version, f"pgvector {version} is too old, {oldest} is needed: run ALTER EXTENSION vector UPDATE"
    if not await connection.fetchval(sql.VISIBLE):
        return version, "pgvector is in a schema that is not on the search_path of this database's role"
    return version, ""


async def prepare(connection: Any, model: EmbeddingModel) -> None:
    """Add the column and trigger that pgvector needs; raise Unsupported if there is no pgvector."""
    _, trouble = await _detect_pgvector(connection, model)
    if trouble:
        # Installing it may or may not be permitted.
        await _try_execute(connection, sql.INSTALL)
        _, trouble = await _detect_pgvector(connection, model)
    if trouble:
        raise Unsupported(trouble)
    if await connection.fetchval(sql.PREPARED):
        return
    for _ in range(_TRIES):
        if await _try_execute(connection, *sql.PREPARE):
            return
        await asyncio.sleep(_POLL_S)
    raise StoreUnavailable("other sessions kept the table of vectors locked; pgvector is prepared later")


async def _try_execute(connection: Any, *statements: str) -> bool:
    """Execute statements in a transaction that waits only briefly for locks; return whether it succeeded."""
    from recollect.ledger.postgres import REFUSED_ERRORS

    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = {_LOCK_MS}")
            for statement in statements:
                await connection.execute(statement)
    except REFUSED_ERRORS:
        return False
    return True


async def _missing(connection: Any, model: int) -> dict[str, str]:
    """Return the indexes of a model that do not exist or are invalid, with their tables."""
    parts = [row[0] for row in await connection.fetch(sql.PARTS)]
    matches = dict(await connection.fetch(sql.INDEXES))
    return {name: table for name, table in sql.index_names(model, parts).items() if not matches.get(name)}


async def _build(engine: PostgresEngine, connection: Any, model: tuple[int, int], progress: Progress) -> None:
    """Build the missing indexes of the model."""
    missing = await _missing(connection, model[0])
    total = await connection.fetchval(sql.TOTAL, model[0]) if missing else 0
    for name, table in missing.items():
        # An earlier build may have been interrupted.
        await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
        making = asyncio.create_task(connection.execute(sql.create_index(name, table, *model), timeout=None))
        try:
            async with engine.dedicated_connection(NO_TENANT) as monitor:
                while not (await asyncio.wait([making], timeout=_POLL_S))[0]:
                    if row := await monitor.fetchrow(sql.PROGRESS, connection.get_server_pid()):
                        progress(row[0], total)
            await making
        finally:
            making.cancel()


def open_pgvector(ledger: Ledger, model: EmbeddingModel) -> PgvectorStore:
    """Return the store over the vectors of a ledger in PostgreSQL."""
    if ledger.engine.dialect.name != "postgres":
        raise InvalidSettings("pgvector searches a ledger in PostgreSQL: set database to a postgresql:// address")
    from recollect.ledger.postgres import PostgresEngine

    assert isinstance(ledger.engine, PostgresEngine)
    return PgvectorStore(ledger.engine, model)


def pgvector_store_of(index: Index) -> PgvectorStore | None:
    """Return the index's store if it is pgvector."""
    store = index.store if isinstance(index, VectorStoreIndex) else None
    return store if isinstance(store, PgvectorStore) else None
