"""Administration: checks of a ledger and its search, and the status, verification and rebuilding of the index."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from recollect.errors import IndexInUse, RecollectError, StoreCorrupt, Unsupported
from recollect.frozen_dataclass import frozen_dataclass
from recollect.index.exact import ExactIndex
from recollect.index.pgvector import open_pgvector, pgvector_store_of
from recollect.index.protocol import Index
from recollect.index.store_sync import IndexCheck, verify_index
from recollect.index.vector_store_index import sync_of
from recollect.ledger.ledger import Ledger
from recollect.ledger.sql.migrate import migrations
from recollect.ledger.types import current_model_state, find_model_state
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import EVERYTHING, Listing
from recollect.model.scope import Scope
from recollect.models.embedding import TOKEN_MODEL, Embedder

EMBEDDER_REMEDY = "see recollect config show for embedder, its URL and key"
_LOW_DISK_BYTES = 1 << 30
_MIN_DISK_BYTES = 64 << 20
_OVERDUE_S = 300.0
_MAX_USERS_TRIED = 20


@frozen_dataclass
class CheckResult:
    """The result of a check; `mend` is the remedy, and `error` the kind of a failure."""

    name: str
    message: str
    state: Literal["ok", "warn", "fail"] = "ok"
    mend: str = ""
    error: type[Exception] = RecollectError


async def check_store(
    ledger: Ledger, embedder: Embedder | None, *, user: str | None, index: str, mend: bool, integrity: bool = True
) -> AsyncIterator[CheckResult]:
    """Check an open ledger, and if there is an embedder, that memories of a user are found by their vectors."""
    checks = [_check_integrity(ledger, mend=mend), _check_jobs(ledger)][0 if integrity else 1 :]
    if embedder is not None:
        checks += [_check_vectors(ledger, embedder), _check_search(ledger, embedder, user)]
        if index == "pgvector":
            checks.append(_check_pgvector(ledger, embedder))
    for check in checks:
        async for result in check:
            yield result


async def check_embedder(embedder: Embedder) -> CheckResult:
    """Check that the embedder answers."""
    started = time.perf_counter()
    try:
        [vector] = await embedder.embed(["Does it answer?"], role="query")
    except RecollectError as error:
        return failed_check("embedder", error, mend=EMBEDDER_REMEDY)
    elapsed_ms = (time.perf_counter() - started) * 1000
    return CheckResult("embedder", f"{embedder.model} answered in {elapsed_ms:.1f} ms with {len(vector)} numbers")


def failed_check(name: str, error: RecollectError, *, mend: str = "") -> CheckResult:
    """Return an error as a failure."""
    return CheckResult(name, str(error) or type(error).__name__, "fail", mend, type(error))


def check_folder(folder: Path) -> Iterator[CheckResult]:
    """Check that the folder is writable and has free space."""
    existing = next((each for each in (folder, *folder.parents) if each.exists()), Path("/"))
    try:
        if not existing.is_dir():
            raise NotADirectoryError(f"{existing} is not a folder")
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        mend = "give the folder write permission, or name another with --home"
        yield CheckResult("home", f"{folder}: {error.strerror or error}", "fail", mend, OSError)
        return
    yield CheckResult("home", f"{folder} {'is writable' if existing == folder else 'can be created'}")
    free = shutil.disk_usage(existing).free
    message = f"{free / 1e9:.1f} GB free"
    if free < _MIN_DISK_BYTES:
        yield CheckResult("disk", message, "fail", "free some space before writing more", OSError)
    elif free < _LOW_DISK_BYTES:
        yield CheckResult("disk", message, "warn", "free some space soon")
    else:
        yield CheckResult("disk", message)


def schema_version(dialect: Literal["sqlite", "postgres"]) -> int:
    """Return the number of the newest schema."""
    return max(migrations(dialect))


async def _check_integrity(ledger: Ledger, *, mend: bool) -> AsyncIterator[CheckResult]:
    """Check the ledger for damage; with `mend`, rebuild its full-text index first."""
    if mend:
        await ledger.rebuild_terms()
        yield CheckResult("full text", "rebuilt")
    try:
        damages = await ledger.check()
    except StoreCorrupt as error:
        damages = [str(error)]
    for damage in damages:
        yield CheckResult("integrity", damage, "fail", error=StoreCorrupt)
    if damages:
        return
    counts = await ledger.stats()
    memories, turns, users = (counts.get(name, 0) for name in ("memories", "turns", "users"))
    yield CheckResult("integrity", f"no damage found (memories {memories:,}, turns {turns:,}, users {users:,})")
    for warning in await ledger.security_warnings():
        yield CheckResult("safety", warning, "warn")


async def _check_jobs(ledger: Ledger) -> AsyncIterator[CheckResult]:
    stats = await ledger.job_stats()
    message = f"{stats.waiting:,} waiting, {stats.running:,} running, {stats.dead:,} dead"
    if stats.dead:
        mend = "recollect jobs --state dead shows the errors; recollect jobs --replay all runs them again"
        yield CheckResult("jobs", message, "warn", mend)
    elif stats.oldest_due_age_s > _OVERDUE_S:
        late = f"{message}; one has been due for {stats.oldest_due_age_s:.0f} s"
        yield CheckResult("jobs", late, "warn", "recollect worker runs them")
    else:
        yield CheckResult("jobs", message)


async def _check_vectors(ledger: Ledger, embedder: Embedder) -> AsyncIterator[CheckResult]:
    """Check that the model of the settings is searched, and that every memory has a vector of it."""
    mend = "recollect reembed creates them; a server or a worker does so in the background"
    counts, states = await ledger.models(), await ledger.model_states()
    searched, named = current_model_state(states), find_model_state(states, embedder.model)
    if searched is not None and searched.model != embedder.model:
        if named is not None and named.retired_at is not None:
            mend = "name it in the settings, or recollect reembed --back goes back"
        message = f"memories are searched by {searched.model}, and the settings name {embedder.model}"
        yield CheckResult("vectors", message, "warn", mend)
    elif await ledger.unembedded(embedder.model, limit=1):
        message = f"some memories have none of {embedder.model}; they are found by their words only"
        yield CheckResult("vectors", message, "warn", mend)
    else:
        current, encoded = counts.pop(embedder.model, 0), counts.pop(TOKEN_MODEL, 0)
        replaced = "".join(f"; {count:,} of {model}, replaced" for model, count in counts.items())
        message = f"{current:,}, all of the current model; {encoded:,} with token vectors{replaced}"
        yield CheckResult("vectors", message)


async def _check_search(ledger: Ledger, embedder: Embedder, user: str | None) -> AsyncIterator[CheckResult]:
    """Check that a memory is found by its words and by its vector."""
    record = await _any_memory(ledger, user)
    if record is None:
        yield CheckResult("search", "nothing to find yet")
        return
    scope, text = record.scope, record.content[:200]
    matches = await ledger.lexical(scope, text)
    if len(matches.rows) or not any(character.isalnum() for character in text):
        yield CheckResult("full text", f"finds a memory of user {scope.user} by its words")
    else:
        message = f"does not find memory {record.id} by its own words"
        yield CheckResult("full text", message, "fail", "recollect doctor --mend rebuilds it", StoreCorrupt)
    index = ExactIndex(ledger, embedder.model, budget_bytes=0)
    started = time.perf_counter()
    [vector] = await embedder.embed([text], role="query")
    await (await index.view(scope, EVERYTHING)).nearest(vector, limit=1)
    elapsed_ms = (time.perf_counter() - started) * 1000
    size = f"{index.nbytes / 1e6:.1f} MB"
    await index.close()
    yield CheckResult("index", f"user {scope.user} loaded in {elapsed_ms:.1f} ms, {size} of memory")


async def _any_memory(ledger: Ledger, user: str | None) -> MemoryRecord | None:
    for name in [user] if user else (await ledger.users())[:_MAX_USERS_TRIED]:
        for record in await ledger.find(Scope(name), Listing(statuses=(Status.ACTIVE,), limit=1)):
            return record
    return None


async def _check_pgvector(ledger: Ledger, embedder: Embedder) -> AsyncIterator[CheckResult]:
    """Check that PostgreSQL searches for users with many memories."""
    state = await open_pgvector(ledger, embedder.model).state()
    if state.trouble:
        yield CheckResult("pgvector", "search is exact, in memory", "warn", state.trouble)
    elif state.users and not state.is_indexed:
        yield CheckResult("pgvector", "its index is incomplete; the next search of a large user rebuilds it")
    else:
        yield CheckResult("pgvector", f"{state.version}, large users: {state.users:,}")


_PAGE_SIZE = 1000


@frozen_dataclass
class IndexAdmin:
    """An open index with its ledger; the exact index is in memory, and has nothing to verify or rebuild."""

    ledger: Ledger
    index: Index

    async def status(self) -> dict[str, Any]:
        """Return which engine is used, and how many users it lags behind the ledger.

        `users` is None for a file that another process has opened.
        """
        if (pgvector := pgvector_store_of(self.index)) is not None:
            state = await pgvector.state()
            if state.trouble:
                raise Unsupported(state.trouble)
            return {"engine": pgvector.name, "users": state.users, "users_behind": 0}
        if (sync := sync_of(self.index)) is None:
            return {"engine": None, "users_behind": 0}
        users_behind, after = 0, ""
        while page := await self.ledger.lagging_users(sync.feed_name, limit=_PAGE_SIZE, after=after):
            users_behind, after = users_behind + len(page), page[-1].user
        try:
            users = len(await sync.store.users())
        except IndexInUse:
            users = None
        return {"engine": sync.store.name, "users": users, "users_behind": users_behind}

    async def verify(self) -> list[IndexCheck] | None:
        """Compare the rows of each user with the ledger; None for the exact index."""
        if (pgvector := pgvector_store_of(self.index)) is not None:
            return [
                IndexCheck(user, count, count - wrong, wrong, 0, 0) for user, count, wrong in await pgvector.verify()
            ]
        if (sync := sync_of(self.index)) is None:
            return None
        checks = verify_index(self.ledger, sync.model, sync.store, feed_name=sync.feed_name)
        return [each async for each in checks]

    async def rebuild(self, progress: Callable[[int], None], *, exact_rows: int) -> int | None:
        """Rebuild all rows from the ledger and return their number; None for the exact index.

        pgvector has rows only for users with more than `exact_rows` memories.
        """
        if (pgvector := pgvector_store_of(self.index)) is not None:
            return await pgvector.rebuild(large=exact_rows + 1, progress=lambda done, total: progress(done))
        sync = sync_of(self.index)
        return None if sync is None else await sync.rebuild(progress)


async def partition_tables(ledger: Ledger, parts: int) -> None:
    """Partition the large tables of a PostgreSQL ledger by user."""
    if ledger.engine.dialect.name != "postgres":
        raise Unsupported("only a PostgreSQL ledger can be partitioned: name one with --database postgresql://...")
    from recollect.ledger.postgres import PostgresEngine
    from recollect.ledger.postgres_tables import partition

    assert isinstance(ledger.engine, PostgresEngine)
    await partition(ledger.engine, parts)
