"""recollect mirror"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from recollect.cli.context import CliContext, command, pass_cli
from recollect.cli.exit_codes import ExitCode
from recollect.cli.output import ProgressBar, bold, dim, pluralize, print_json, print_line
from recollect.errors import InvalidSettings, RecollectError

if TYPE_CHECKING:
    from recollect.config.settings import Settings
    from recollect.mirror.diff import Difference
    from recollect.mirror.mirror import Mirror
    from recollect.mirror.state import MirrorStatus, SyncResult

_MAX_SHOWN = 20


@click.group()
def mirror() -> None:
    """Inspect and sync the memories that are Markdown files."""


def _load_settings(cli: CliContext) -> Settings:
    settings = cli.settings()
    if not settings.mirror:
        raise InvalidSettings("there is no mirror: set mirror to a folder, or use --preset markdown-proxy")
    return settings


@command("recollect mirror status --preset markdown-proxy", scope="", group=mirror)
@pass_cli
def status(cli: CliContext) -> None:
    """Show what is mirrored, rejected files and the reasons, conflicts, and memories without a file."""
    from recollect.mirror.state import read_mirror_status
    from recollect.wiring import mirror_folder

    settings = _load_settings(cli)
    current = read_mirror_status(mirror_folder(settings))
    review, problem = 0, ""
    try:
        review = _count_in_review(cli) if current.synced_at is not None else 0
    except RecollectError as error:
        # The files can be shown without the ledger.
        problem = str(error)
    if cli.json:
        print_json({**current.to_dict(), "review": None if problem else review})
        return
    _print_status(current, review=review)
    if problem:
        print_line("The number of memories in review is unknown: ", dim(problem))


def _count_in_review(cli: CliContext) -> int:
    """Return how many memories wait for review; they have no files."""
    with cli.open({"worker": False}) as memory:
        return memory.admin.stats()["review"]


@command("recollect mirror sync --preset markdown-proxy", scope="", group=mirror)
@pass_cli
def sync(cli: CliContext) -> None:
    """Sync files and ledger now.

    A running server syncs continuously; this is for when none is running.
    """
    settings = _load_settings(cli)
    with ProgressBar("Comparing") as progress:
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
    changes = "; ".join(f"{count:,} {how}" for how, count in counts.items() if count)
    cli.reply(counts, f"{changes}." if changes else "Files and memories say the same.")


async def _sync(settings: Settings, progress: ProgressBar) -> SyncResult:
    async with _open_mirror(settings) as mirror:
        return await mirror.sync(progress)


@asynccontextmanager
async def _open_mirror(settings: Settings) -> AsyncIterator[Mirror]:
    from recollect.wiring import open_mirror, open_service

    service = await open_service(settings)
    try:
        yield open_mirror(settings, service)
    finally:
        await service.close()


@command(
    "recollect mirror sync --preset markdown-proxy",
    "recollect mirror verify --preset markdown-proxy",
    scope="",
    group=mirror,
)
@pass_cli
def verify(cli: CliContext) -> None:
    """Compare every file with its memory; the exit code is 4 if any differ."""
    settings = _load_settings(cli)
    with ProgressBar("Verifying") as progress:
        count, differences = asyncio.run(_verify(settings, progress))
    if cli.json:
        print_json({"files": count, "differences": [asdict(each) for each in differences]})
    else:
        for each in differences[:_MAX_SHOWN]:
            print_line(bold(each.where), dim(f"  {each.what}"))
        if len(differences) > _MAX_SHOWN:
            print_line(dim(f"and {len(differences) - _MAX_SHOWN:,} more; --json lists all"))
        found = pluralize(len(differences), "difference") if differences else "all as in the ledger"
        print_line(f"{pluralize(count, 'file')}, {found}.")
    if differences:
        click.get_current_context().exit(int(ExitCode.CONFLICT))


async def _verify(settings: Settings, progress: ProgressBar) -> tuple[int, list[Difference]]:
    async with _open_mirror(settings) as mirror:
        return await mirror.verify(progress)


def _print_status(current: MirrorStatus, *, review: int) -> None:
    print_line(bold(str(current.folder)))
    if current.synced_at is None:
        print_line("Nothing is mirrored yet. ", dim("Run recollect serve, or recollect mirror sync."))
        return
    memories, tombstones = pluralize(current.counts["memories"], "memory", "memories"), current.counts["tombstones"]
    print_line(f"{memories} and {pluralize(tombstones, 'tombstone')} of {pluralize(current.users, 'user')}.")
    is_mirrored = current.process is not None
    print_line(f"Mirrored by process {current.process}." if is_mirrored else "No process mirrors it now.")
    versions = "versions by git" if current.versions else "no versions"
    print_line(dim(f"Last compared {current.synced_at[:19]}; {versions}."))
    if review:
        wait = "1 memory waits" if review == 1 else f"{review:,} memories wait"
        print_line(f"{wait} for review, without a file until then: ", bold("recollect review"))
    for rejected in current.rejected[:_MAX_SHOWN]:
        print_line("Rejected: ", bold(rejected.path), dim(f"  {rejected.reason}"))
    for conflict in current.conflicts[:_MAX_SHOWN]:
        print_line("Conflict: ", bold(conflict.path), dim("  has the text an edit replaced; delete it after reading"))
    more = max(0, len(current.rejected) - _MAX_SHOWN) + max(0, len(current.conflicts) - _MAX_SHOWN)
    if more:
        print_line(dim(f"and {more:,} more; --json lists all"))
