"""recollect index, reembed, partition and mirror."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recollect.cli.context import CliContext, ExitCode, command
from recollect.cli.output import Column, ProgressBar, bold, dim, pluralize, print_json, print_line, print_table
from recollect.errors import InvalidSettings, RecollectError

if TYPE_CHECKING:
    from recollect.config.settings import Settings
    from recollect.mirror.mirror import Mirror
    from recollect.service.diagnosis import IndexAdmin
    from recollect.service.service import ModelState


_T = TypeVar("_T")
_INDEX_COLUMNS = [Column("USER", style="bold"), Column("ROWS"), Column("MISSING"), Column("EXTRA"), Column("WAITING")]
_NOTHING_STORED = "The index is built from the ledger in memory: there is nothing to {}."


@click.group()
def index() -> None:
    """Compare the vector database with the ledger, or rebuild it."""


def _run_with_index(settings: Settings, action: Callable[[IndexAdmin], Awaitable[_T]]) -> _T:
    from recollect.service.diagnosis import IndexAdmin
    from recollect.wiring import open_index, open_store

    async def run() -> _T:
        async with open_store(settings) as (ledger, embedder):
            opened = open_index(settings, ledger, embedder.model)
            try:
                return await action(IndexAdmin(ledger, opened))
            finally:
                await opened.close()

    return asyncio.run(run())


@command("recollect index status", scope="", group=index)
def status(cli: CliContext) -> None:
    """Print which index is used, whether it is available, and how far it lags behind the ledger."""
    settings = cli.settings()
    state = _run_with_index(settings, lambda index: index.status())
    engine = state["engine"]
    lag = f"{pluralize(state['users_behind'], 'user')} behind the ledger."
    if engine is None:
        message = "Vectors are searched exactly, in memory, and are always in sync with the ledger."
    elif state["users"] is None:
        message = f"{engine} is open in another process, such as a server; {lag}"
    else:
        message = f"{engine} is available. It has rows of {pluralize(state['users'], 'user')}; {lag}"
    cli.reply({"index": "exact" if engine is None else settings.index, **state}, message)


@command("recollect index verify", "recollect index verify --json", scope="", group=index)
def verify(cli: CliContext) -> None:
    """Compare the vector database with the ledger, user by user; the exit code is 6 if they differ.

    Rows that changed since the last sync are counted as waiting.
    """
    compared = _run_with_index(cli.settings(), lambda index: index.verify())
    wrong = [each for each in compared or () if not each.is_consistent]
    if cli.json:
        print_json({"right": not wrong, "users": [asdict(each) for each in compared or ()]})
    elif compared is None:
        print_line(_NOTHING_STORED.format("verify"))
    elif wrong:
        rows = [[each.user, each.rows, each.missing, each.extra, each.waiting] for each in wrong]
        print_table(_INDEX_COLUMNS, [list(map(str, row)) for row in rows])
        print_line(f"Wrong for {pluralize(len(wrong), 'user')}; run: recollect index rebuild")
    else:
        matching, waiting = (sum(getattr(each, name) for each in compared) for name in ("kept", "waiting"))
        users = pluralize(len(compared), "user")
        print_line(f"In sync: {pluralize(matching, 'row')} of {users}, {waiting} waiting.")
    if wrong:
        raise SystemExit(ExitCode.DAMAGED)


@command("recollect index rebuild", scope="", group=index)
def rebuild(cli: CliContext) -> None:
    """Rebuild the vector database from the ledger.

    Meanwhile searches use the vectors of the ledger.
    """
    settings = cli.settings()
    with ProgressBar("Rebuilding") as progress:
        count = _run_with_index(settings, lambda index: index.rebuild(progress, exact_rows=settings.index_exact_rows))
    message = _NOTHING_STORED.format("rebuild") if count is None else f"Rebuilt {pluralize(count, 'row')}."
    cli.reply({"rows": count or 0}, message)


@command("recollect reembed", "recollect reembed --status", "recollect reembed --drop", scope="")
@click.option("--status", is_flag=True, help="Only print the models and their progress.")
@click.option("--back", is_flag=True, help="Also if the model of the settings was replaced earlier.")
@click.option("--drop", is_flag=True, help="Delete the vectors of earlier models now, not a day later.")
def reembed(cli: CliContext, status: bool, back: bool, drop: bool) -> None:
    """Switch to the embedding model of the settings now.

    Servers and workers do it in the background; this is for installations without them. All memories are embedded,
    then the new model is searched. Until then the earlier one is. It can be interrupted and run again.
    """
    with cli.open() as memory:
        if status:
            _print_models(cli, list(memory.admin.embedding_models()))
            return
        with ProgressBar("Embedding") as progress:
            count = memory.admin.reembed(progress, back=back, drop=drop)
    done = f"Embedded {pluralize(count, 'memory', 'memories')}."
    cli.reply({"embedded": count}, done if count else "Every memory has a vector of the current model.")


def _print_models(cli: CliContext, states: list[ModelState]) -> None:
    if cli.replied({"models": [_model_dict(state) for state in states]}):
        return
    for state in sorted(states, key=lambda each: (not each.is_current, each.retired_at is not None)):
        print_line(f"{state.model}: {_describe_model(state)[1]}")


def _describe_model(state: ModelState) -> tuple[str, str]:
    """Return the state of a model, and a description."""
    if state.is_current:
        return "current", f"searched since {state.current_at:%Y-%m-%d %H:%M} UTC"
    if state.retired_at is not None:
        return "replaced", f"replaced at {state.retired_at:%Y-%m-%d %H:%M} UTC"
    so_far = f"{state.embedded:,} of {state.to_embed:,} memories done"
    return ("coming", f"in progress, {so_far}") if state.is_pending else ("begun", f"interrupted, {so_far}")


def _model_dict(state: ModelState) -> dict[str, Any]:
    return {
        "model": state.model.name,
        "dimensions": state.model.dimensions,
        "embedder": state.origin.spec,
        "state": _describe_model(state)[0],
        "current_at": state.current_at.isoformat() if state.current_at else None,
        "replaced_at": state.retired_at.isoformat() if state.retired_at else None,
        "done": state.embedded,
        "total": state.to_embed,
    }


@command("recollect partition 16 --database postgresql://host/recollect", scope="")
@click.argument("parts", type=click.IntRange(2, 1024))
def partition(cli: CliContext, parts: int) -> None:
    """Partition the large tables of PostgreSQL by user.

    Into PARTS partitions, for tables of hundreds of gigabytes. Stop everything that uses the database first: one
    transaction rewrites the tables, and needs as much free space as they take.
    """
    from recollect.service.diagnosis import partition_tables
    from recollect.wiring import open_store

    async def run() -> None:
        # Opening the ledger also migrates its tables.
        async with open_store(cli.settings()) as (ledger, _):
            await partition_tables(ledger, parts)

    asyncio.run(run())
    cli.reply({"parts": parts}, f"Split the large tables into {parts} parts each.")


_MAX_SHOWN = 20


@click.group()
def mirror() -> None:
    """Inspect and sync the memories that are Markdown files."""


def _load_settings(cli: CliContext) -> Settings:
    settings = cli.settings()
    if not settings.mirror:
        raise InvalidSettings("there is no mirror: set mirror to a folder, or use --preset markdown-proxy")
    return settings


@command("recollect mirror status --preset markdown-proxy", scope="", group=mirror, name="status")
def mirror_status(cli: CliContext) -> None:
    """Show what is mirrored, rejected files and the reasons, conflicts, and memories without a file."""
    from recollect.mirror.state import read_mirror_status
    from recollect.wiring import mirror_folder

    settings = _load_settings(cli)
    current = read_mirror_status(mirror_folder(settings))
    # Memories that wait for review have no files.
    review, problem = 0, ""
    try:
        if current["synced_at"] is not None:
            with cli.open({"worker": False}) as memory:
                review = memory.admin.stats()["review"]
    except RecollectError as error:
        # The files can be shown without the ledger.
        problem = str(error)
    if cli.replied({**current, "review": None if problem else review}):
        return
    _print_status(current, review=review)
    if problem:
        print_line("The number of memories in review is unknown: ", dim(problem))


@command("recollect mirror sync --preset markdown-proxy", scope="", group=mirror)
def sync(cli: CliContext) -> None:
    """Sync files and ledger now.

    A running server syncs continuously; this is for when none is running.
    """
    with ProgressBar("Comparing") as progress:
        done = _run_with_mirror(cli, lambda mirror: mirror.sync(progress))
    names = ("added", "edited", "forgotten", "restored", "conflicts")
    counts = {"written": len(set(done.written)), **{name: getattr(done, name) for name in names}, "aside": done.bad}
    changes = "; ".join(f"{count:,} {how}" for how, count in counts.items() if count)
    cli.reply(counts, f"{changes}." if changes else "Files and memories say the same.")


def _run_with_mirror(cli: CliContext, action: Callable[[Mirror], Awaitable[_T]]) -> _T:
    from recollect.wiring import open_mirror, open_service

    settings = _load_settings(cli)

    async def run() -> _T:
        service = await open_service(settings)
        try:
            return await action(open_mirror(settings, service))
        finally:
            await service.close()

    return asyncio.run(run())


@command(
    "recollect mirror sync --preset markdown-proxy",
    "recollect mirror verify --preset markdown-proxy",
    scope="",
    group=mirror,
    name="verify",
)
def mirror_verify(cli: CliContext) -> None:
    """Compare every file with its memory; the exit code is 4 if any differ."""
    with ProgressBar("Verifying") as progress:
        count, differences = _run_with_mirror(cli, lambda mirror: mirror.verify(progress))
    if not cli.replied({"files": count, "differences": [asdict(each) for each in differences]}):
        for each in differences[:_MAX_SHOWN]:
            print_line(bold(each.where), dim(f"  {each.what}"))
        if len(differences) > _MAX_SHOWN:
            print_line(dim(f"and {len(differences) - _MAX_SHOWN:,} more; --json lists all"))
        found = pluralize(len(differences), "difference") if differences else "all as in the ledger"
        print_line(f"{pluralize(count, 'file')}, {found}.")
    if differences:
        click.get_current_context().exit(int(ExitCode.CONFLICT))


def _print_status(current: dict[str, Any], *, review: int) -> None:
    print_line(bold(current["folder"]))
    if current["synced_at"] is None:
        print_line("Nothing is mirrored yet. ", dim("Run recollect serve, or recollect mirror sync."))
        return
    memories, tombstones = pluralize(current["memories"], "memory", "memories"), current["tombstones"]
    print_line(f"{memories} and {pluralize(tombstones, 'tombstone')} of {pluralize(current['users'], 'user')}.")
    process = current["mirrored_by"]
    print_line("No process mirrors it now." if process is None else f"Mirrored by process {process}.")
    versions = "versions by git" if current["versions"] else "no versions"
    print_line(dim(f"Last compared {current['synced_at'][:19]}; {versions}."))
    if review:
        wait = "1 memory waits" if review == 1 else f"{review:,} memories wait"
        print_line(f"{wait} for review, without a file until then: ", bold("recollect review"))
    for rejected in current["aside"][:_MAX_SHOWN]:
        print_line("Rejected: ", bold(rejected["path"]), dim(f"  {rejected['reason']}"))
    hint = dim("  has the text an edit replaced; delete it after reading")
    for conflict in current["conflicts"][:_MAX_SHOWN]:
        print_line("Conflict: ", bold(conflict["path"]), hint)
    if more := sum(max(0, len(current[name]) - _MAX_SHOWN) for name in ("aside", "conflicts")):
        print_line(dim(f"and {more:,} more; --json lists all"))
