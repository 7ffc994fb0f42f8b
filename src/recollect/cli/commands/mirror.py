"""recollect mirror"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from recollect.cli.command import Command
from recollect.cli.exit_codes import ExitCode
from recollect.cli.given import Given, listen_to_log, pass_given
from recollect.cli.progress import Progress
from recollect.cli.records import counted
from recollect.cli.terminal import bold, dim, print_json, say
from recollect.errors import InvalidSettings, RecollectError

if TYPE_CHECKING:
    from recollect.mirror.status import Status
    from recollect.mirror.together import Synced
    from recollect.mirror.verify import Difference
    from recollect.settings import Settings

_MOST_SHOWN = 20


@click.group()
def mirror() -> None:
    """Show and check the memories that are Markdown files."""


@mirror.command(cls=Command, whose="", examples=("recollect mirror status --preset markdown-proxy",))
@pass_given
def status(given: Given) -> None:
    """Show what is mirrored, what is left aside and why, what conflicts there were, and what has no file yet."""
    from recollect.mirror.status import status_of
    from recollect.wiring import mirror_folder

    settings = _settings(given)
    found = status_of(mirror_folder(settings))
    review, trouble = 0, ""
    try:
        review = asyncio.run(_in_review(settings)) if found.synced_at is not None else 0
    except RecollectError as error:
        # The files are there all the same.
        trouble = str(error)
    if given.json:
        print_json({**found.to_dict(), "review": None if trouble else review})
        return
    _say_status(found, review=review)
    if trouble:
        say("What waits for review cannot be told: ", dim(trouble))


@mirror.command(cls=Command, whose="", examples=("recollect mirror sync --preset markdown-proxy",))
@pass_given
def sync(given: Given) -> None:
    """Bring files and ledger together now.

    A server does so by itself, all the time; this is for when none is running.
    """
    settings = _settings(given)
    listen_to_log(verbose=given.verbose)
    with Progress("Comparing") as progress:
        done = asyncio.run(_sync(settings, progress))
    taken = done.taken
    told = {
        "written": len(set(done.put.written + taken.put.written)),
        "added": taken.added,
        "edited": taken.edited,
        "forgotten": taken.forgotten,
        "restored": taken.restored,
        "conflicts": taken.conflicts,
        "aside": taken.bad,
    }
    if given.json:
        print_json(told)
    elif any(told.values()):
        say("; ".join(f"{count:,} {how}" for how, count in told.items() if count) + ".")
    else:
        say("Files and memories say the same.")


@mirror.command(
    cls=Command,
    whose="",
    examples=("recollect mirror sync --preset markdown-proxy", "recollect mirror verify --preset markdown-proxy"),
)
@click.pass_context
@pass_given
def verify(given: Given, context: click.Context) -> None:
    """Hold every file against its memory; the exit code is 4 if any two differ."""
    settings = _settings(given)
    listen_to_log(verbose=given.verbose)
    with Progress("Verifying") as progress:
        count, differences = asyncio.run(_verify(settings, progress))
    if given.json:
        found = [{"where": each.where, "what": each.what} for each in differences]
        print_json({"files": count, "differences": found})
    else:
        _say_verified(count, differences)
    if differences:
        context.exit(int(ExitCode.CONFLICT))


def _settings(given: Given) -> Settings:
    settings = given.load().settings
    if not settings.mirror:
        raise InvalidSettings("there is no mirror: set mirror to a folder, or use --preset markdown-proxy")
    return settings


async def _sync(settings: Settings, progress: Progress) -> Synced:
    from recollect.mirror.mirror import Mirror
    from recollect.wiring import open_service

    service = await open_service(settings)
    try:
        if not isinstance(service.care.mirror, Mirror):
            raise InvalidSettings("there is no mirror")
        return await service.care.mirror.sync(progress)
    finally:
        await service.close()


async def _in_review(settings: Settings) -> int:
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
    from recollect.mirror.verify import verify as check
    from recollect.wiring import mirror_folder, open_embedder, open_ledger

    embedder = await open_embedder(settings)
    ledger = await open_ledger(settings, embedder.model)
    try:
        return await check(mirror_folder(settings), ledger=ledger, root_user=settings.chat_user, progress=progress)
    finally:
        await ledger.close()
        await embedder.close()


def _say_status(found: Status, *, review: int) -> None:
    say(bold(str(found.folder)))
    if found.synced_at is None:
        say("Nothing is mirrored yet. ", dim("recollect serve does it, or recollect mirror sync."))
        return
    memories, tombstones = counted(found.counts["memories"], "memory", "memories"), found.counts["tombstones"]
    say(f"{memories} and {counted(tombstones, 'tombstone')} of {counted(found.users, 'user')}.")
    say(f"Mirrored by process {found.process}." if found.process is not None else "No process mirrors it now.")
    say(dim(f"Last compared {found.synced_at[:19]}; " + ("versions by git." if found.versions else "no versions.")))
    if review:
        wait = "1 memory waits" if review == 1 else f"{review:,} memories wait"
        say(f"{wait} for review, without a file until someone decides: ", bold("recollect review"))
    for bad in found.aside[:_MOST_SHOWN]:
        say("Left aside: ", bold(bad.path), dim(f"  {bad.reason}"))
    for kept in found.conflicts[:_MOST_SHOWN]:
        say("Conflict: ", bold(kept.path), dim("  what an edit took the place of; remove it when you have seen it"))
    more = max(0, len(found.aside) - _MOST_SHOWN) + max(0, len(found.conflicts) - _MOST_SHOWN)
    if more:
        say(dim(f"and {more:,} more; --json lists them all"))


def _say_verified(count: int, differences: list[Difference]) -> None:
    for each in differences[:_MOST_SHOWN]:
        say(bold(each.where), dim(f"  {each.what}"))
    if len(differences) > _MOST_SHOWN:
        say(dim(f"and {len(differences) - _MOST_SHOWN:,} more; --json lists them all"))
    files = counted(count, "file")
    say(f"{files}, {counted(len(differences), 'difference')}." if differences else f"{files}, all as in the ledger.")
