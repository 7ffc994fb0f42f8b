"""recollect backup"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.cli.command import Command
from recollect.cli.erasures import agreed, read_receipts
from recollect.cli.given import Given, listen_to_log, pass_given
from recollect.cli.progress import Progress
from recollect.cli.records import counted, short_time
from recollect.cli.terminal import dim, print_json, say

if TYPE_CHECKING:
    from recollect.ledger.sealed import Backup

_TOLD = ("users", "memories", "history", "vectors", "conversations", "jobs")


@click.group()
def backup() -> None:
    """Make, verify and restore backups of everything."""


@backup.command(cls=Command, whose="", examples=("recollect backup make monday.backup",))
@click.argument("file")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@pass_given
def make(given: Given, file: str, force: bool) -> None:
    """Write all there is to one file, while it is used.

    What was acknowledged before the command began is in it: everyone's memories in every state with their history,
    vectors, sessions, jobs, and what stands for the server's keys. Keep it as safe as the ledger.
    """
    with given.open() as memory, Progress("Backing up", total=100) as progress:
        made = memory.backup(file, force=force, progress=_percent(progress))
    _tell(given, made, f"Backed up to {file}")


@backup.command(
    cls=Command,
    whose="",
    examples=("recollect backup make tuesday.backup", "recollect backup verify tuesday.backup"),
)
@click.argument("file")
@pass_given
def verify(given: Given, file: str) -> None:
    """Tell whether a backup is whole, readable and unchanged.

    Every byte is held against the seal it was given, every page is looked at, all rows are counted.
    """
    from recollect.ledger.sealed import verify as verified

    found = verified(Path(file))
    _tell(given, found, f"{file} is whole, made {short_time(found.made_at)}")


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
@pass_given
def restore(given: Given, file: str, erasures: str | None, force: bool, yes: bool) -> None:
    """Verify a backup and make it the ledger.

    Stop servers and workers first. What was erased since the backup was made is erased from it again, and keys
    revoked since stay revoked: the ledger it replaces tells, and --erasures does where that is gone. A PostgreSQL
    database must be empty; it takes a backup of SQLite too, and the other way round.
    """
    from recollect.restoring import restore as restored

    receipts = read_receipts(erasures) if erasures else None
    if force and not yes and not agreed(given, "Put the backup in the place of the ledger that is there?"):
        say("Nothing was restored.", err=True)
        return
    listen_to_log(verbose=given.verbose)
    with Progress("Restoring", total=100) as progress:
        done = asyncio.run(
            restored(Path(file), given.load().settings, erasures=receipts, force=force, told=_percent(progress))
        )
    if given.json:
        replaced = None if done.replaced is None else str(done.replaced)
        told = {"erased_again": done.erased, "keys_revoked_again": done.revoked, "replaced": replaced}
        print_json({**done.backup.to_dict(), **told})
        return
    _tell(given, done.backup, f"Restored {file}, made {short_time(done.backup.made_at)}")
    if done.erased or done.revoked:
        say(f"  erased again what was erased since: {done.erased:,}; keys revoked again: {done.revoked:,}")
    if done.replaced is not None:
        say(
            dim(f"  what was there is now {done.replaced}: it still holds everything; remove it when you are content")
        )


def _percent(progress: Progress) -> Callable[[int, int], None]:
    return lambda done, total: progress(100 * done // max(1, total))


def _tell(given: Given, found: Backup, said: str) -> None:
    if given.json:
        print_json(found.to_dict())
        return
    held = ", ".join(f"{name} {found.rows[name]:,}" for name in _TOLD if found.rows.get(name))
    say(said, dim(f"  {counted(found.size, 'byte')}"))
    say(f"  {held or 'nothing in it yet'}")
