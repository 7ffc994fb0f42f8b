"""The ledger in PostgreSQL: a pool of connections, transactions, retries, migrations and translated errors."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from recollect.errors import (
    Conflict,
    DiskFull,
    InvalidInput,
    InvalidSettings,
    InvalidText,
    MissingExtra,
    RecollectError,
    StoreBusy,
    StoreUnavailable,
    Unsupported,
)
from recollect.ledger.ledger import Ledger
from recollect.ledger.postgres_dialect import (
    FAULTS,
    UNGUARDED,
    NotSingleStatement,
    PostgresDialect,
    PostgresTx,
    SingleStatementTx,
    TenantConnection,
    security_warnings,
    tenant_statements,
)
from recollect.ledger.postgres_tables import scrub, sweep
from recollect.ledger.redacted_writes import WriteRedactor
from recollect.ledger.sql.tx import NO_TENANT, Row, ScrubResult, Tenant, Tx
from recollect.models.embedding import EmbeddingModel

try:
    from asyncpg import exceptions as pg
except ImportError as error:
    raise MissingExtra("PostgreSQL", "postgres") from error

BUSY_S = 30.0
CONNECTION_ERRORS = (pg.PostgresConnectionError, ConnectionError, pg.AdminShutdownError, pg.CrashShutdownError)
# Nothing was committed, and a retry can succeed.
RETRYABLE_ERRORS = (
    pg.SerializationError,
    pg.DeadlockDetectedError,
    pg.InvalidCachedStatementError,
    *CONNECTION_ERRORS,
)
# Not permitted, or not at the moment.
REFUSED_ERRORS = (
    pg.InsufficientPrivilegeError,
    pg.LockNotAvailableError,
    pg.DeadlockDetectedError,
    pg.UndefinedFileError,
    pg.FeatureNotSupportedError,
)
ERRORS = (pg.PostgresError, pg.InterfaceError, pg.InternalClientError, OSError)


def mask_dsn(dsn: str) -> str:
    """Return an address without its password."""
    scheme, separator, rest = dsn.partition("://")
    login, at, location = rest.rpartition("@")
    user = login.partition(":")[0]
    if not separator or "?" in user or "/" in user:
        return "PostgreSQL"
    location, _, options = location.partition("?")
    hosts = [option for option in options.split("&") if option.startswith(("host=", "port="))]
    return f"{scheme}://{user}{at}{location}{'?' if hosts else ''}{'&'.join(hosts)}"


def translate_error(error: Exception, where: str) -> RecollectError:
    """Return the `RecollectError` for an error of PostgreSQL or the network, with a remedy."""
    match error:
        case pg.UniqueViolationError():
            return Conflict("another active memory says the same or holds the same key; forget it first")
        case pg.DiskFullError():
            return DiskFull(f"no space left at {where}: free some; nothing that was acknowledged is lost")
        case pg.CharacterNotInRepertoireError() | pg.UntranslatableCharacterError():
            return InvalidText(f"the text contains a character that {where} cannot store")
        case pg.DataError() if isinstance(error.__cause__, UnicodeError):
            return InvalidText("the text holds half of a character (a lone surrogate); remove it and try again")
        case pg.DataError() | ValueError():
            # Its message repeats the value.
            return InvalidInput(f"{where} cannot store a value ({type(error).__name__})")
        case pg.ProgramLimitExceededError():
            return InvalidInput(f"an id or a key is too long for {where}")
        case pg.LockNotAvailableError():
            return StoreBusy(f"{where} was locked by other writers for {BUSY_S:.0f} s; retry later")
        case TimeoutError():
            return StoreUnavailable(f"{where} did not answer in time: check that it is up and not overloaded")
        case pg.TooManyConnectionsError():
            return StoreUnavailable(
                f"{where} has no connection left: raise its max_connections, or run fewer processes"
            )
        case pg.InvalidAuthorizationSpecificationError():
            return StoreUnavailable(f"{where} refused the login: check the user, the password and pg_hba.conf")
        case pg.InvalidCatalogNameError():
            return StoreUnavailable(f"{where}: {error}; make it with: createdb")
        case pg.InsufficientPrivilegeError() if "row-level security" in str(error):
            return Conflict(f"{where} refused to write a row of another user; nothing was changed")
        case pg.InsufficientPrivilegeError() | pg.InvalidSchemaNameError():
            return StoreUnavailable(f"{where}: {error}; give the user its own schema, or GRANT CREATE, USAGE on one")
        case OSError() | pg.PostgresConnectionError() | pg.OperatorInterventionError():
            return StoreUnavailable(f"{where} cannot be reached: check that it is running and the address ({error})")
        case pg.PostgresError():
            # Only its message: the details contain values.
            return StoreUnavailable(f"{where}: {str(error.args[0] if error.args else type(error).__name__)[:200]}")
        case _:
            return StoreUnavailable(f"{where}: {error}")


try:
    import asyncpg
    from asyncpg import exceptions as pg
except ImportError as error:
    raise MissingExtra("PostgreSQL", "postgres") from error

T = TypeVar("T")
R = TypeVar("R")
OLDEST = 14
CONNECTIONS = 10
CONNECT_S = 10.0
ACQUIRE_S = 30.0
STATEMENT_S = 60.0
CLOSE_S = 30.0
ROLLBACK_S = 2.0
TRIES = 6
_BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_BEGIN_WRITE = f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = '{BUSY_S:.0f}s'"
# Only `off` is changed: a setting that waits for a standby stays.
_DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
# Any number, as long as every Recollect uses the same one.
_MIGRATING = (
    "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = 0; "
    "SELECT pg_advisory_xact_lock(7233194108)"
)
# A statement that waits for a table blocks all later ones: a migration gives up soon, and retries.
MIGRATION_LOCK_S = 1.0
MIGRATION_PAUSE_S = 1.0
MIGRATION_TRIES = 600
_BEGIN_MIGRATION = (
    f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = {1000 * MIGRATION_LOCK_S:.0f}"
)
# The secret of the ledger, and the number of its last change, which no erasure lowers.
_IDENTITY = (
    "SELECT value, coalesce(pg_sequence_last_value(pg_get_serial_sequence('history', 'id')::regclass), 0) "
    "FROM meta WHERE name = 'tombstone_secret'"
)
NOTE_EVERY_S = 5.0
# A connection idle for longer than IDLE_S is checked, with a timeout of ALIVE_S.
IDLE_S, ALIVE_S = 30.0, 2.0


class _Connection(TenantConnection, asyncpg.Connection):  # type: ignore[misc]
    """A connection that knows its tenant and when it was last used."""

    _used_at = 0.0

    def mark_used(self) -> None:
        self._used_at = time.monotonic()

    def idle_s(self) -> float:
        return time.monotonic() - self._used_at


class PostgresEngine:
    """A pool of connections to one database. It belongs to the event loop that opened it."""

    dialect = PostgresDialect()
    is_local = False

    def __init__(self, dsn: str, *, connections: int = CONNECTIONS) -> None:
        self.where = mask_dsn(dsn)
        name = {} if "application_name=" in dsn else {"application_name": "recollect"}
        self._address = {"dsn": dsn, "timeout": CONNECT_S, "server_settings": name}
        self._size = connections
        # Writers of one user wait for each other inside PostgreSQL; connections for readers must be left.
        self._write_slots = asyncio.Semaphore(max(1, connections - 2))
        self._timeout_s: float | None = STATEMENT_S
        self._migrates = False
        self._pool: Any = None
        self._is_direct = True
        self._returning: set[asyncio.Task[None]] = set()
        self._scrubbing = asyncio.Lock()
        self._last_scrub = (0.0, ScrubResult(False))
        self._identity: tuple[str, int] | None = None
        self._noted_at = 0.0

    async def open(self) -> None:
        """Connect, or raise the error that explains why not."""
        try:
            self._pool = await asyncpg.create_pool(
                **self._address,
                # Connections are opened on demand: while the database is down the pool would retry by
                # itself, and log a traceback each time.
                min_size=0,
                max_size=self._size,
                connection_class=_Connection,
                init=self._set_up,
                reset=_leave_as_is,
            )
            await self._pool.release(await self._pool.acquire(timeout=ACQUIRE_S))
        except ValueError:
            # The message may contain a part of the password.
            raise InvalidSettings(
                f"{self.where} is not an address of PostgreSQL; use postgresql://user:password@host:5432/database"
            ) from None
        except ERRORS as error:
            raise translate_error(error, self.where) from error
        async with self._connection() as connection:
            version = connection.get_server_version()
            try:
                process = await connection.fetchval("SELECT pg_backend_pid()", timeout=self._timeout_s)
            except ERRORS as error:
                raise translate_error(error, self.where) from error
            # Behind a pooler each transaction may use another connection, so that only SET LOCAL holds.
            self._is_direct = process == connection.get_server_pid()
        if version.major < OLDEST:
            await self.close()
            raise Unsupported(f"{self.where} is PostgreSQL {version.major}; Recollect needs {OLDEST} or newer")

    async def note_identity(self) -> None:
        """Note which ledger the database contains; from now on a connection to another one is refused.

        The server may be replaced by another at the same address, or a backup be restored in its place. Writes to it
        would be acknowledged and gone once the former one is back.
        """
        self._identity = None
        [(secret, _)] = await self._query(_IDENTITY)
        self._identity = secret, 0

    async def _read_progress(self, connection: Any) -> int:
        """Return the number of the last change from time to time, before a commit; 0 otherwise.

        The commit makes it durable, whatever transaction it is of: a crash cannot lower it afterwards.
        """
        if self._identity is None or time.monotonic() - self._noted_at < NOTE_EVERY_S:
            return 0
        self._noted_at = time.monotonic()
        row = await connection.fetchrow(f"{_IDENTITY} AND pg_current_xact_id_if_assigned() IS NOT NULL")
        return int(row[1]) if row else 0

    async def _set_up(self, connection: Any) -> None:
        """Make commits durable whatever the server's default, pass jsonb as plain values, and check the ledger."""
        connection.mark_used()
        await connection.execute(_DURABLE)
        await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
        if self._identity is None:
            return
        try:
            rows = await connection.fetch(_IDENTITY, timeout=STATEMENT_S)
        except (pg.UndefinedTableError, pg.UndefinedObjectError):
            rows = []
        secret, number = self._identity
        if not rows or rows[0][0] != secret or rows[0][1] < number:
            raise StoreUnavailable(
                f"{self.where} was replaced while in use: it is empty, another ledger or an older copy, and nothing "
                "is stored in it: put the former database back, or restart to use this one"
            )

    @asynccontextmanager
    async def migrating(self) -> AsyncIterator[None]:
        """Keep other processes from migrating at the same time; statements have no timeout."""
        # Not from the pool, which is closed before this is released if a migration fails.
        try:
            connection = await asyncpg.connect(**self._address)
            try:
                await connection.execute(_MIGRATING)
                self._timeout_s, self._migrates = None, True
                yield
            finally:
                self._timeout_s, self._migrates = STATEMENT_S, False
                connection.terminate()
        except ERRORS as error:
            raise translate_error(error, self.where) from error

    async def read(self, body: Callable[[Tx], Coroutine[Any, Any, T]], *, tenant: Tenant, quick: bool = False) -> T:
        if quick and self._is_direct:
            try:
                return await self._retry(self._read_single, body, tenant)
            except NotSingleStatement:
                pass
        return await self._retry(self._read_snapshot, body, tenant)

    async def write(self, body: Callable[[Tx], Coroutine[Any, Any, T]], *, tenant: Tenant) -> T:
        async with self._write_slots:
            for _ in range(MIGRATION_TRIES if self._migrates else 0):
                try:
                    return await self._retry(self._transaction, body, tenant)
                except StoreBusy:
                    # Other transactions go on meanwhile.
                    await asyncio.sleep(random.uniform(0.5, 1.5) * MIGRATION_PAUSE_S)
            return await self._retry(self._transaction, body, tenant)

    async def write_each(
        self, body: Callable[[Tx, Sequence[R]], Coroutine[Any, Any, Sequence[T]]], request: R, *, tenant: Tenant
    ) -> T:
        [result] = await self.write(lambda tx: body(tx, [request]), tenant=tenant)
        return result

    async def _retry(
        self, attempt: Callable[..., Coroutine[Any, Any, T]], body: Callable[..., Any], tenant: Tenant
    ) -> T:
        for tries in range(1, TRIES + 1):
            try:
                return await attempt(body, tenant)
            except ERRORS as error:
                if tries == TRIES or not isinstance(error, RETRYABLE_ERRORS):
                    raise translate_error(error, self.where) from error
            await asyncio.sleep(random.uniform(0, 0.005 * 2**tries))
        raise AssertionError("unreachable")

    async def _read_single(self, body: Callable[[Tx], Coroutine[Any, Any, T]], tenant: Tenant) -> T:
        async with self._connection() as connection:
            await connection.set_tenant(tenant, self._timeout_s)
            return await body(SingleStatementTx(connection, self._timeout_s))

    async def _read_snapshot(self, body: Callable[[Tx], Coroutine[Any, Any, T]], tenant: Tenant) -> T:
        async with self._connection() as connection:
            await connection.execute(f"{_BEGIN_READ}; {tenant_statements(tenant)}", timeout=self._timeout_s)
            result = await body(PostgresTx(connection, self._timeout_s))
            await connection.execute("COMMIT", timeout=self._timeout_s)
            return result

    async def _transaction(self, body: Callable[[Tx], Coroutine[Any, Any, T]], tenant: Tenant) -> T:
        async with self._connection() as connection:
            begin = _BEGIN_MIGRATION if self._migrates else _BEGIN_WRITE
            await connection.execute(f"{begin}; {tenant_statements(tenant)}", timeout=self._timeout_s)
            result = await body(PostgresTx(connection, self._timeout_s))
            number = await self._read_progress(connection)
            try:
                done = await connection.execute("COMMIT", timeout=self._timeout_s)
            except (*CONNECTION_ERRORS, TimeoutError) as error:
                raise StoreUnavailable(
                    f"{self.where} was lost during the commit: check whether the write is there before a retry"
                ) from error
            if done != "COMMIT":
                raise StoreUnavailable(f"{self.where} rolled the changes back instead of committing them")
            if number and self._identity is not None:
                self._identity = self._identity[0], max(number, self._identity[1])
            return result

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        pool = self._pool
        if pool is None:
            raise StoreUnavailable(f"{self.where} is closed")
        try:
            connection = await pool.acquire(timeout=ACQUIRE_S)
        except ERRORS as error:
            raise translate_error(error, self.where) from error
        await self._check_alive(pool, connection)
        try:
            yield connection
        except Exception as error:
            is_lost = isinstance(error, pg.InterfaceError) and _is_closed(connection)
            await asyncio.shield(self._put_back(pool, connection, broken=isinstance(error, OSError)))
            if is_lost:
                raise ConnectionResetError(str(error)) from error
            raise
        except BaseException:
            # The caller was cancelled and must not wait: the transaction is ended in the background.
            self._put_back(pool, connection)
            raise
        else:
            # It may be lost by now; what it answered counts.
            if not _is_closed(connection):
                connection.mark_used()
            with suppress(*ERRORS):
                await pool.release(connection)

    async def _check_alive(self, pool: Any, connection: Any) -> None:
        """Raise if a connection is lost, or was idle for long and is dead, so that another one is used."""
        if _is_closed(connection):
            await asyncio.shield(self._put_back(pool, connection, broken=True))
            raise ConnectionResetError("the connection was lost before it was used")
        if connection.idle_s() < IDLE_S:
            return
        try:
            await connection.execute("SELECT 1", timeout=ALIVE_S)
        except BaseException as error:
            connection.terminate()
            await asyncio.shield(self._put_back(pool, connection, broken=True))
            if isinstance(error, ERRORS):
                # If one is dead the others probably are: each is reopened when it is next needed.
                await pool.expire_connections()
                raise ConnectionResetError(str(error)) from error
            raise

    def _put_back(self, pool: Any, connection: Any, *, broken: bool = False) -> asyncio.Task[None]:
        task = asyncio.create_task(_put_back(pool, connection, broken=broken))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)
        return task

    async def size(self) -> int:
        sizes = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_catalog.pg_class "
        rows = await self._query(sizes + "WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace")
        return int(rows[0][0])

    async def scrub(self, tables: Sequence[str]) -> ScrubResult:
        if self._pool is None:
            raise StoreUnavailable(f"{self.where} is closed")
        requested_at = time.monotonic()
        async with self._scrubbing:
            # A scrub that started after this request covers it as well.
            if self._last_scrub[0] <= requested_at:
                self._last_scrub = time.monotonic(), await self._run_vacuum(scrub, tables)
            return self._last_scrub[1]

    async def sweep(self, tables: Sequence[str]) -> ScrubResult:
        if self._pool is None:
            raise StoreUnavailable(f"{self.where} is closed")
        return await self._run_vacuum(sweep, tables)

    @asynccontextmanager
    async def dedicated_connection(self, tenant: Tenant) -> AsyncIterator[Any]:
        """Open a connection outside the pool, restricted to a tenant, for long operations."""
        connection = await self.connect()
        try:
            await connection.set_tenant(tenant, CONNECT_S)
            yield connection
        except ERRORS as error:
            raise translate_error(error, self.where) from error
        finally:
            connection.terminate()

    async def connect(self) -> Any:
        """Open a connection that the caller terminates."""
        try:
            return await asyncpg.connect(**self._address, connection_class=_Connection)
        except ERRORS as error:
            raise translate_error(error, self.where) from error

    async def _run_vacuum(
        self, operation: Callable[..., Coroutine[Any, Any, ScrubResult]], tables: Sequence[str]
    ) -> ScrubResult:
        # Not from the pool: it takes longer than a request.
        try:
            connection = await asyncpg.connect(**self._address)
            try:
                return await operation(connection, tables, errors=ERRORS)
            finally:
                connection.terminate()
        except ERRORS as error:
            return ScrubResult(False, f"{self.where} could not be vacuumed: {error}")

    async def check(self) -> list[str]:
        return [f"{self.where}: {sentence}" for sentence, sql in FAULTS.items() if await self._query(sql)]

    async def security_warnings(self) -> list[str]:
        return security_warnings([(row[0], row[1]) for row in await self._query(UNGUARDED)], self.where)

    async def _query(self, sql: str) -> Sequence[Row]:
        async def question(tx: Tx) -> Sequence[Row]:
            return await tx.rows(sql, {})

        return await self.read(question, tenant=NO_TENANT, quick=True)

    async def copy_to(self, path: Path, on_progress: Callable[[int, int], None]) -> None:
        from recollect.ledger.backup_file import copy_to_sqlite

        await copy_to_sqlite(self, path, on_progress)

    async def copy_from(self, path: Path, on_progress: Callable[[int, int], None]) -> None:
        from recollect.ledger.backup_file import copy_from_sqlite

        await copy_from_sqlite(self, path, on_progress)
        await self.note_identity()

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(CLOSE_S):
                    await pool.close()
            except TimeoutError:
                pool.terminate()


async def _leave_as_is(connection: Any) -> None:
    """Reset nothing: session settings are made once, and the rest is SET LOCAL."""


async def _put_back(pool: Any, connection: Any, *, broken: bool) -> None:
    """Return a connection to the pool with no transaction open; terminate one that may not answer."""
    is_clean = False
    try:
        if not broken:
            await connection.execute("ROLLBACK", timeout=ROLLBACK_S)
            is_clean = True
    except ERRORS:
        pass
    finally:
        if not is_clean and not _is_closed(connection):
            connection.terminate()
        with suppress(*ERRORS):
            await pool.release(connection)


def _is_closed(connection: Any) -> bool:
    try:
        return bool(connection.is_closed())
    except pg.InterfaceError:
        return True


async def open_postgres(
    dsn: str, model: EmbeddingModel, redactor: WriteRedactor | None = None, *, connections: int = CONNECTIONS
) -> Ledger:
    """Open the ledger in a database, whose tables are created if they do not exist."""
    engine = PostgresEngine(dsn, connections=connections)
    try:
        await engine.open()
        async with engine.migrating():
            ledger = await Ledger.open(engine, model, redactor)
        await engine.note_identity()
        return ledger
    except BaseException:
        await engine.close()
        raise
