"""recollect backup"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.cli.command import Command
from recollect.cli.erasures import ask_confirmation, read_receipts
from recollect.cli.given import CliContext, configure_logging, pass_cli
from recollect.cli.progress import Progress
from recollect.cli.records import format_short_time, pluralize
from recollect.cli.terminal import dim, print_json, print_line

if TYPE_CHECKING:
    from recollect.ledger.sealed import Backup

_REPORTED_TABLES = ("users", "memories", "history", "vectors", "conversations", "jobs")


@click.group()
def backup() -> None:
    """Make, verify and restore backups of everything."""


@backup.command(cls=Command, whose="", examples=("recollect backup make monday.backup",))
@click.argument("file")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@pass_cli
def make(cli: CliContext, file: str, force: bool) -> None:
    """Write all there is to one file, while it is used.

    What was acknowledged before the command began is in it: everyone's memories in every state with their history,
    vectors, sessions, jobs, and what stands for the server's keys. Keep it as safe as the ledger.
    """
    with cli.open() as memory, Progress("Backing up", total=100) as progress:
        made = memory.backup(file, force=force, progress=_percent_callback(progress))
    _print_backup(cli, made, f"Backed up to {file}")


@backup.command(
    cls=Command,
    whose="",
    examples=("recollect backup make tuesday.backup", "recollect backup verify tuesday.backup"),
)
@click.argument("file")
@pass_cli
def verify(cli: CliContext, file: str) -> None:
    """Tell whether a backup is whole, readable and unchanged.

    Every byte is held against the seal it was given, every page is looked at, all rows are counted.
    """
    from recollect.ledger.sealed import verify_backup as verified

    info = verified(Path(file))
    _print_backup(cli, info, f"{file} is whole, made {format_short_time(info.made_at)}")


@backup.command(
    cls=Command,
    whose="",
    examples=(
        "recollect backup make wednesday.backup",
        "recollect backup restore wednesday.backup --force --yes",
    ),
)
@click.argument("file")
@click.option(
    "--erasures", metavar="FILE", help="What was erased since, as `recollect erase --receipts --to` wrote it."
)
@click.option("--force", is_flag=True, help="Put it in the place of a ledger that is there, which is kept beside.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_cli
def restore(cli: CliContext, file: str, erasures: str | None, force: bool, yes: bool) -> None:
    """Verify a backup and make it the ledger.

    Stop servers and workers first. What was erased since the backup was made is erased from it again, and keys
    revoked since stay revoked: the ledger it replaces tells, and --erasures does where that is gone. A PostgreSQL
    database must be empty; it takes a backup of SQLite too, and the other way round.
    """
    from recollect.restoring import restore as restored

    receipts = read_receipts(erasures) if erasures else None
    if force and not yes and not ask_confirmation(cli, "Put the backup in the place of the ledger that is there?"):
        print_line("Nothing was restored.", err=True)
        return
    configure_logging(verbose=cli.verbose)
    with Progress("Restoring", total=100) as progress:
        done = asyncio.run(
            restored(
                Path(file), cli.load().settings, erasures=receipts, force=force, progress=_percent_callback(progress)
            )
        )
    if cli.json:
        replaced = None if done.replaced is None else str(done.replaced)
        summary = {"erased_again": done.erased, "keys_revoked_again": done.revoked, "replaced": replaced}
        print_json({**done.backup.to_dict(), **summary})
        return
    _print_backup(cli, done.backup, f"Restored {file}, made {format_short_time(done.backup.made_at)}")
    if done.erased or done.revoked:
        print_line(f"  erased again what was erased since: {done.erased:,}; keys revoked again: {done.revoked:,}")
    if done.replaced is not None:
        print_line(
            dim(f"  what was there is now {done.replaced}: it still holds everything; remove it when you are content")
        )


def _percent_callback(progress: Progress) -> Callable[[int, int], None]:
    return lambda done, total: progress(100 * done // max(1, total))


def _print_backup(cli: CliContext, info: Backup, headline: str) -> None:
    if cli.json:
        print_json(info.to_dict())
        return
    counts = ", ".join(f"{name} {info.rows[name]:,}" for name in _REPORTED_TABLES if info.rows.get(name))
    print_line(headline, dim(f"  {pluralize(info.size, 'byte')}"))
    print_line(f"  {counts or 'nothing in it yet'}")
