"""recollect index"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recollect.cli.context import CliContext, Command, configure_logging, pass_cli
from recollect.cli.exit_codes import ExitCode
from recollect.cli.progress import Progress
from recollect.cli.rendering import pluralize
from recollect.cli.table import Column, print_table
from recollect.cli.terminal import print_json, print_line
from recollect.config.settings import Settings
from recollect.errors import Unsupported

if TYPE_CHECKING:
    from recollect.index.protocol import Index
    from recollect.index.store_sync import IndexCheck, IndexSync
    from recollect.ledger.model_states import ModelState
    from recollect.ledger.postgres_pgvector import HnswIndex
    from recollect.ledger.protocol import Ledger


_T = TypeVar("_T")
_INDEX_COLUMNS = [Column("USER", style="bold"), Column("ROWS"), Column("MISSING"), Column("EXTRA"), Column("WAITING")]
_NOTHING_STORED = "It is made from the ledger whenever it is needed: there is nothing to {} that could be wrong."


@click.group()
def index() -> None:
    """Compare the vector database with the ledger, or fill it anew."""


@dataclass(frozen=True, slots=True)
class _IndexParts:
    settings: Settings
    ledger: Ledger
    index: Index
    feeder: IndexSync | None
    pgvector: HnswIndex | None


@index.command(cls=Command, scope_options="", examples=("recollect index status",))
@pass_cli
def status(cli: CliContext) -> None:
    """Say what searches, whether it answers, and how far it is behind the ledger."""

    async def read_status(parts: _IndexParts) -> dict[str, Any]:
        if parts.pgvector is not None:
            return await _pgvector_status(parts.pgvector)
        if parts.feeder is None:
            return {"index": "exact", "engine": None, "users_behind": 0}
        users_behind, after = 0, ""
        while page := await parts.ledger.lagging_users(parts.feeder.feed_name, limit=1000, after=after):
            users_behind, after = users_behind + len(page), page[-1].user
        users = await parts.feeder.store.users()
        names = {"index": parts.settings.index, "engine": parts.feeder.store.name}
        return {**names, "users": len(users), "users_behind": users_behind}

    result = _run_with_index(cli, read_status)
    if cli.json:
        print_json(result)
    elif result["engine"] is None:
        print_line("Vectors are searched exactly, in memory, and are always as the ledger has them.")
    else:
        users, users_behind = pluralize(result["users"], "user"), pluralize(result["users_behind"], "user")
        print_line(f"{result['engine']} answers. It has rows of {users}; {users_behind} behind the ledger.")


@index.command(cls=Command, scope_options="", examples=("recollect index verify", "recollect index verify --json"))
@pass_cli
def verify(cli: CliContext) -> None:
    """Compare the vector database with the ledger, user by user; it ends with an error where it is wrong.

    Rows that changed since it was last fed are on their way, and counted apart.
    """

    async def compare_rows(parts: _IndexParts) -> list[IndexCheck] | None:
        from recollect.index.store_sync import IndexCheck, verify_index

        if parts.pgvector is not None:
            return [
                IndexCheck(user, rows, rows - wrong, wrong, 0, 0)
                for user, rows, wrong in await parts.pgvector.verify()
            ]
        if parts.feeder is None:
            return None
        feeder = parts.feeder
        return [
            each async for each in verify_index(parts.ledger, feeder.model, feeder.store, feed_name=feeder.feed_name)
        ]

    compared = _run_with_index(cli, compare_rows)
    wrong = [each for each in compared or () if not each.is_consistent]
    if cli.json:
        print_json({"right": not wrong, "users": [asdict(each) for each in compared or ()]})
    elif compared is None:
        print_line(_NOTHING_STORED.format("verify"))
    else:
        rows = [[each.user, each.rows, each.missing, each.extra, each.waiting] for each in wrong]
        if rows:
            print_table(_INDEX_COLUMNS, [list(map(str, row)) for row in rows])
        if wrong:
            print_line(f"Wrong for {pluralize(len(wrong), 'user')}; run: recollect index rebuild")
        else:
            matching, waiting = (sum(getattr(each, name) for each in compared) for name in ("kept", "waiting"))
            print_line(
                f"All right: {pluralize(matching, 'row')} of {pluralize(len(compared), 'user')}, "
                f"{waiting} on their way."
            )
    if wrong:
        raise SystemExit(ExitCode.DAMAGED)


@index.command(cls=Command, scope_options="", examples=("recollect index rebuild",))
@pass_cli
def rebuild(cli: CliContext) -> None:
    """Empty the vector database and feed it anew from the ledger.

    Memories are found meanwhile, by comparing with the ledger's own vectors.
    """
    with Progress("Feeding") as progress:

        async def rebuild_rows(parts: _IndexParts) -> int | None:
            if parts.pgvector is not None:
                large = parts.settings.index_exact_rows + 1
                return await parts.pgvector.rebuild(large=large, progress=lambda done, total: progress(done))
            return None if parts.feeder is None else await parts.feeder.rebuild(progress)

        count = _run_with_index(cli, rebuild_rows)
    if cli.json:
        print_json({"rows": count or 0})
    elif count is None:
        print_line(_NOTHING_STORED.format("rebuild"))
    else:
        print_line(f"Fed {pluralize(count, 'row')}.")


async def _pgvector_status(pgvector: HnswIndex) -> dict[str, Any]:
    from recollect.errors import Unsupported

    state = await pgvector.state()
    if state.trouble:
        raise Unsupported(state.trouble)
    return {"index": "pgvector", "engine": f"pgvector at {pgvector.where}", "users": state.users, "users_behind": 0}


def _run_with_index(cli: CliContext, action: Callable[[_IndexParts], Coroutine[Any, Any, _T]]) -> _T:
    async def run() -> _T:
        async with _open_parts(cli) as parts:
            return await action(parts)

    configure_logging(verbose=cli.verbose)
    return asyncio.run(run())


@asynccontextmanager
async def _open_parts(cli: CliContext) -> AsyncIterator[_IndexParts]:
    from recollect.index.pgvector import hnsw_index_of
    from recollect.index.vector_store_index import sync_of
    from recollect.wiring import open_embedder, open_index, open_ledger

    settings = cli.load().settings
    embedder = await open_embedder(settings)
    try:
        ledger = await open_ledger(settings, embedder.model)
        try:
            opened_index = open_index(settings, ledger, embedder.model)
            try:
                yield _IndexParts(settings, ledger, opened_index, sync_of(opened_index), hnsw_index_of(opened_index))
            finally:
                await opened_index.close()
        finally:
            await ledger.close()
    finally:
        await embedder.close()


@click.command(
    cls=Command,
    scope_options="",
    examples=("recollect reembed", "recollect reembed --status", "recollect reembed --drop"),
)
@click.option("--status", is_flag=True, help="Only say which model is searched, and how far another one is.")
@click.option("--back", is_flag=True, help="Also if the settings name a model that another took the place of.")
@click.option("--drop", is_flag=True, help="Remove the vectors of models before at once, not a day later.")
@pass_cli
def reembed(cli: CliContext, status: bool, back: bool, drop: bool) -> None:
    """Change to the embedding model that the settings name, now.

    Servers and workers do it behind their answers; this is for who has none, or does not want to wait. Vectors are
    made for all memories, and then searched. Until then the model before is. It can be broken off and run again.
    """
    if status:
        with cli.open() as memory:
            _print_models(memory.admin.embedding_models(), as_json=cli.json)
        return
    with cli.open() as memory, Progress("Embedding") as progress:
        count = memory.admin.reembed(progress, back=back, drop=drop)
    if cli.json:
        print_json({"embedded": count})
    elif count:
        print_line(f"Embedded {pluralize(count, 'memory', 'memories')}.")
    else:
        print_line("Every memory has a vector of the current model.")


def _print_models(states: Sequence[ModelState], *, as_json: bool) -> None:
    if as_json:
        print_json({"models": [_model_dict(state) for state in states]})
        return
    for state in sorted(states, key=lambda each: (not each.is_current, each.retired_at is not None)):
        print_line(f"{state.model}: {_describe_model(state)}")


def _describe_model(state: ModelState) -> str:
    if state.is_current:
        return f"searched since {state.current_at:%Y-%m-%d %H:%M} UTC"
    if state.retired_at is not None:
        return f"replaced at {state.retired_at:%Y-%m-%d %H:%M} UTC"
    so_far = f"{state.embedded:,} of {state.to_embed:,} memories done"
    return f"coming, {so_far}" if state.is_pending else f"begun, {so_far}; nobody goes on with it now"


def _model_state_name(state: ModelState) -> str:
    if state.is_current:
        return "current"
    return "replaced" if state.retired_at is not None else "coming" if state.is_pending else "begun"


def _model_dict(state: ModelState) -> dict[str, Any]:
    return {
        "model": state.model.name,
        "dimensions": state.model.dimensions,
        "embedder": state.origin.spec,
        "state": _model_state_name(state),
        "current_at": state.current_at.isoformat() if state.current_at else None,
        "replaced_at": state.retired_at.isoformat() if state.retired_at else None,
        "done": state.embedded,
        "total": state.to_embed,
    }


@click.command(
    cls=Command, scope_options="", examples=("recollect partition 16 --database postgresql://host/recollect",)
)
@click.argument("parts", type=click.IntRange(2, 1024))
@pass_cli
def partition(cli: CliContext, parts: int) -> None:
    """Split the large tables of a PostgreSQL database by user.

    Into so many PARTS; for a database with tables of hundreds of gigabytes. Stop everything that uses the database
    first: it is done once, in one transaction that writes the tables anew, and needs as much free space as they take.
    """
    asyncio.run(_split_tables(cli.load().settings, parts))
    if cli.json:
        print_json({"parts": parts})
    else:
        print_line(f"Split the large tables into {parts} parts each.")


async def _split_tables(settings: Settings, parts: int) -> None:
    from recollect.ledger.sql.ledger import SqlLedger
    from recollect.wiring import open_embedder, open_ledger

    embedder = await open_embedder(settings)
    try:
        # Brings the tables up to date first.
        ledger = await open_ledger(settings, embedder.model)
        try:
            if not isinstance(ledger, SqlLedger) or ledger.engine.dialect.name != "postgres":
                raise Unsupported(
                    "only a ledger in PostgreSQL can be split: name one with --database postgresql://..."
                )
            from recollect.ledger.postgres import PostgresEngine
            from recollect.ledger.postgres_partition import partition

            assert isinstance(ledger.engine, PostgresEngine)
            await partition(ledger.engine, parts)
        finally:
            await ledger.close()
    finally:
        await embedder.close()
