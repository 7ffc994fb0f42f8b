"""recollect index"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recollect.cli.command import Command
from recollect.cli.exit_codes import ExitCode
from recollect.cli.given import Given, listen_to_log, pass_given
from recollect.cli.progress import Progress
from recollect.cli.records import counted
from recollect.cli.table import Column, print_table
from recollect.cli.terminal import print_json, say

if TYPE_CHECKING:
    from recollect.index.compare import Compared
    from recollect.index.feeder import Feeder
    from recollect.index.protocol import Index
    from recollect.ledger.postgres_near import Near
    from recollect.ledger.protocol import Ledger
    from recollect.settings import Settings

_T = TypeVar("_T")
_COLUMNS = [Column("USER", style="bold"), Column("ROWS"), Column("MISSING"), Column("EXTRA"), Column("WAITING")]
_NONE = "It is made from the ledger whenever it is needed: there is nothing to {} that could be wrong."


@click.group()
def index() -> None:
    """Compare the vector database with the ledger, or fill it anew."""


@dataclass(frozen=True, slots=True)
class _Parts:
    settings: Settings
    ledger: Ledger
    index: Index
    feeder: Feeder | None
    near: Near | None


@index.command(cls=Command, whose="", examples=("recollect index status",))
@pass_given
def status(given: Given) -> None:
    """Say what searches, whether it answers, and how far it is behind the ledger."""

    async def look(parts: _Parts) -> dict[str, Any]:
        if parts.near is not None:
            return await _near_status(parts.near)
        if parts.feeder is None:
            return {"index": "exact", "engine": None, "users_behind": 0}
        behind, after = 0, ""
        while page := await parts.ledger.behind(parts.feeder.fed_as, limit=1000, after=after):
            behind, after = behind + len(page), page[-1].user
        users = await parts.feeder.engine.users()
        told = {"index": parts.settings.index, "engine": parts.feeder.engine.name}
        return {**told, "users": len(users), "users_behind": behind}

    found = _run(given, look)
    if given.json:
        print_json(found)
    elif found["engine"] is None:
        say("Vectors are searched exactly, in memory, and are always as the ledger has them.")
    else:
        users, behind = counted(found["users"], "user"), counted(found["users_behind"], "user")
        say(f"{found['engine']} answers. It has rows of {users}; {behind} behind the ledger.")


@index.command(cls=Command, whose="", examples=("recollect index verify", "recollect index verify --json"))
@pass_given
def verify(given: Given) -> None:
    """Compare the vector database with the ledger, user by user; it ends with an error where it is wrong.

    Rows that changed since it was last fed are on their way, and counted apart.
    """

    async def hold(parts: _Parts) -> list[Compared] | None:
        from recollect.index.compare import Compared, compare

        if parts.near is not None:
            return [
                Compared(user, rows, rows - wrong, wrong, 0, 0) for user, rows, wrong in await parts.near.verify()
            ]
        if parts.feeder is None:
            return None
        feeder = parts.feeder
        return [each async for each in compare(parts.ledger, feeder.model, feeder.engine, fed_as=feeder.fed_as)]

    found = _run(given, hold)
    wrong = [each for each in found or () if not each.is_right]
    if given.json:
        print_json({"right": not wrong, "users": [asdict(each) for each in found or ()]})
    elif found is None:
        say(_NONE.format("verify"))
    else:
        rows = [[each.user, each.rows, each.missing, each.extra, each.waiting] for each in wrong]
        if rows:
            print_table(_COLUMNS, [list(map(str, row)) for row in rows])
        if wrong:
            say(f"Wrong for {counted(len(wrong), 'user')}; run: recollect index rebuild")
        else:
            kept, waiting = (sum(getattr(each, name) for each in found) for name in ("kept", "waiting"))
            say(f"All right: {counted(kept, 'row')} of {counted(len(found), 'user')}, {waiting} on their way.")
    if wrong:
        raise SystemExit(ExitCode.DAMAGED)


@index.command(cls=Command, whose="", examples=("recollect index rebuild",))
@pass_given
def rebuild(given: Given) -> None:
    """Empty the vector database and feed it anew from the ledger.

    Memories are found meanwhile, by comparing with the ledger's own vectors.
    """
    with Progress("Feeding") as progress:

        async def anew(parts: _Parts) -> int | None:
            if parts.near is not None:
                large = parts.settings.index_exact_rows + 1
                return await parts.near.rebuild(large=large, progress=lambda done, total: progress(done))
            return None if parts.feeder is None else await parts.feeder.rebuild(progress)

        count = _run(given, anew)
    if given.json:
        print_json({"rows": count or 0})
    elif count is None:
        say(_NONE.format("rebuild"))
    else:
        say(f"Fed {counted(count, 'row')}.")


async def _near_status(near: Near) -> dict[str, Any]:
    from recollect.errors import Unsupported

    state = await near.state()
    if state.trouble:
        raise Unsupported(state.trouble)
    return {"index": "pgvector", "engine": f"pgvector at {near.where}", "users": state.users, "users_behind": 0}


def _run(given: Given, do: Callable[[_Parts], Coroutine[Any, Any, _T]]) -> _T:
    async def run() -> _T:
        async with _opened(given) as parts:
            return await do(parts)

    listen_to_log(verbose=given.verbose)
    return asyncio.run(run())


@asynccontextmanager
async def _opened(given: Given) -> AsyncIterator[_Parts]:
    from recollect.index.engine_index import feeder_of
    from recollect.index.pgvector import near_of
    from recollect.indexing import open_index
    from recollect.wiring import open_embedder, open_ledger

    settings = given.load().settings
    embedder = await open_embedder(settings)
    try:
        ledger = await open_ledger(settings, embedder.model)
        try:
            opened = open_index(settings, ledger, embedder.model)
            try:
                yield _Parts(settings, ledger, opened, feeder_of(opened), near_of(opened))
            finally:
                await opened.close()
        finally:
            await ledger.close()
    finally:
        await embedder.close()
