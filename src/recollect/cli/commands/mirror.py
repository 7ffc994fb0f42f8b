"""recollect mirror"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from recollect.cli.context import CliContext, Command, configure_logging, pass_cli
from recollect.cli.exit_codes import ExitCode
from recollect.cli.progress import Progress
from recollect.cli.rendering import pluralize
from recollect.cli.terminal import bold, dim, print_json, print_line
from recollect.errors import InvalidSettings, RecollectError

if TYPE_CHECKING:
    from recollect.config.settings import Settings
    from recollect.mirror.result import SyncResult
    from recollect.mirror.status import MirrorStatus
    from recollect.mirror.verify import Difference


_MAX_SHOWN = 20


@click.group()
def mirror() -> None:
    """Show and check the memories that are Markdown files."""


@mirror.command(cls=Command, scope_options="", examples=("recollect mirror status --preset markdown-proxy",))
@pass_cli
def status(cli: CliContext) -> None:
    """Show what is mirrored, what is left aside and why, what conflicts there were, and what has no file yet."""
    from recollect.mirror.status import read_mirror_status
    from recollect.wiring import mirror_folder

    settings = _load_settings(cli)
    current = read_mirror_status(mirror_folder(settings))
    review, error_text = 0, ""
    try:
        review = asyncio.run(_count_in_review(settings)) if current.synced_at is not None else 0
    except RecollectError as error:
        # The files are there all the same.
        error_text = str(error)
    if cli.json:
        print_json({**current.to_dict(), "review": None if error_text else review})
        return
    _print_status(current, review=review)
    if error_text:
        print_line("What waits for review cannot be told: ", dim(error_text))


@mirror.command(cls=Command, scope_options="", examples=("recollect mirror sync --preset markdown-proxy",))
@pass_cli
def sync(cli: CliContext) -> None:
    """Bring files and ledger together now.

    A server does so by itself, all the time; this is for when none is running.
    """
    settings = _load_settings(cli)
    configure_logging(verbose=cli.verbose)
    with Progress("Comparing") as progress:
        done = asyncio.run(_sync(settings, progress))
    counts = {
        "written": len(set(done.written)),
        "added": done.added,
        "edited": done.edited,
        "forgotten": done.forgotten,
        "restored": done.restored,
        "conflicts": done.conflicts,
        "aside": done.bad,
    }
    if cli.json:
        print_json(counts)
    elif any(counts.values()):
        print_line("; ".join(f"{count:,} {how}" for how, count in counts.items() if count) + ".")
    else:
        print_line("Files and memories say the same.")


@mirror.command(
    cls=Command,
    scope_options="",
    examples=("recollect mirror sync --preset markdown-proxy", "recollect mirror verify --preset markdown-proxy"),
)
@click.pass_context
@pass_cli
def verify(cli: CliContext, context: click.Context) -> None:
    """Hold every file against its memory; the exit code is 4 if any two differ."""
    settings = _load_settings(cli)
    configure_logging(verbose=cli.verbose)
    with Progress("Verifying") as progress:
        count, differences = asyncio.run(_verify(settings, progress))
    if cli.json:
        rows = [{"where": each.where, "what": each.what} for each in differences]
        print_json({"files": count, "differences": rows})
    else:
        _print_verified(count, differences)
    if differences:
        context.exit(int(ExitCode.CONFLICT))


def _load_settings(cli: CliContext) -> Settings:
    settings = cli.load().settings
    if not settings.mirror:
        raise InvalidSettings("there is no mirror: set mirror to a folder, or use --preset markdown-proxy")
    return settings


async def _sync(settings: Settings, progress: Progress) -> SyncResult:
    from recollect.mirror.mirror import Mirror
    from recollect.wiring import open_service

    service = await open_service(settings)
    try:
        if not isinstance(service.mirror, Mirror):
            raise InvalidSettings("there is no mirror")
        return await service.mirror.sync(progress)
    finally:
        await service.close()


async def _count_in_review(settings: Settings) -> int:
    """How many memories wait for a decision: none of them is a file before."""
    from recollect.wiring import open_embedder, open_ledger

    embedder = await open_embedder(settings)
    ledger = await open_ledger(settings, embedder.model)
    try:
        return (await ledger.stats())["review"]
    finally:
        await ledger.close()
        await embedder.close()


async def _verify(settings: Settings, progress: Progress) -> tuple[int, list[Difference]]:
    from recollect.mirror.verify import verify_files as check
    from recollect.wiring import mirror_folder, open_embedder, open_ledger

    embedder = await open_embedder(settings)
    ledger = await open_ledger(settings, embedder.model)
    try:
        return await check(mirror_folder(settings), ledger=ledger, root_user=settings.chat_user, progress=progress)
    finally:
        await ledger.close()
        await embedder.close()


def _print_status(current: MirrorStatus, *, review: int) -> None:
    print_line(bold(str(current.folder)))
    if current.synced_at is None:
        print_line("Nothing is mirrored yet. ", dim("recollect serve does it, or recollect mirror sync."))
        return
    memories, tombstones = pluralize(current.counts["memories"], "memory", "memories"), current.counts["tombstones"]
    print_line(f"{memories} and {pluralize(tombstones, 'tombstone')} of {pluralize(current.users, 'user')}.")
    print_line(
        f"Mirrored by process {current.process}." if current.process is not None else "No process mirrors it now."
    )
    print_line(
        dim(
            f"Last compared {current.synced_at[:19]}; " + ("versions by git." if current.versions else "no versions.")
        )
    )
    if review:
        wait = "1 memory waits" if review == 1 else f"{review:,} memories wait"
        print_line(f"{wait} for review, without a file until someone decides: ", bold("recollect review"))
    for rejected in current.rejected[:_MAX_SHOWN]:
        print_line("Left aside: ", bold(rejected.path), dim(f"  {rejected.reason}"))
    for conflict in current.conflicts[:_MAX_SHOWN]:
        print_line(
            "Conflict: ",
            bold(conflict.path),
            dim("  what an edit took the place of; remove it when you have seen it"),
        )
    more = max(0, len(current.rejected) - _MAX_SHOWN) + max(0, len(current.conflicts) - _MAX_SHOWN)
    if more:
        print_line(dim(f"and {more:,} more; --json lists them all"))


def _print_verified(count: int, differences: list[Difference]) -> None:
    for each in differences[:_MAX_SHOWN]:
        print_line(bold(each.where), dim(f"  {each.what}"))
    if len(differences) > _MAX_SHOWN:
        print_line(dim(f"and {len(differences) - _MAX_SHOWN:,} more; --json lists them all"))
    files = pluralize(count, "file")
    print_line(
        f"{files}, {pluralize(len(differences), 'difference')}." if differences else f"{files}, all as in the ledger."
    )
