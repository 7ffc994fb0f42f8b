"""recollect export"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TextIO

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.new_file import new_file
from recollect.cli.progress import Progress
from recollect.cli.records import counted
from recollect.cli.terminal import json_text, print_json, say

_KEPT = ("memories", "turns", "superseded", "review", "forgotten")


@click.command(
    cls=Command,
    whose="everyone project",
    examples=("recollect export memories.jsonl", "recollect export --user alex > alex.jsonl"),
)
@click.argument("file", metavar="[FILE]", default="-")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option(
    "--sessions/--no-sessions", default=True, help="Whether to tell how sessions stand, with their summaries."
)
@click.option(
    "--embeddings", is_flag=True, help="The vectors as well: an import with the same model takes them over."
)
@pass_given
def export(given: Given, file: str, force: bool, sessions: bool, embeddings: bool) -> None:
    """Write memories and turns out as JSON Lines.

    To FILE, or to standard output: all memories and turns, in whatever state, oldest first, then how sessions stand.
    A backup has the history too.
    """
    if given.project and not given.user:
        raise click.UsageError("A project is some user's: give --user as well.", click.get_current_context())
    more = {"sessions": sessions, "embeddings": embeddings}
    if file == "-":
        asyncio.run(_write(given, sys.stdout, **more))
        return
    with new_file(Path(file), force=force) as out:
        count = asyncio.run(_write(given, out, **more))
    if given.json:
        print_json({"exported": count, "file": file})
    else:
        say(f"Exported {counted(count, 'line')} to {file}")


async def _write(given: Given, out: TextIO, *, sessions: bool, embeddings: bool) -> int:
    async with given.open_async() as memory:
        counts = await memory.stats(given.user)
        total = None if given.project else sum(counts.get(name, 0) for name in _KEPT)
        done = 0
        with Progress("Exporting", total=total) as progress:
            async for line in memory.export(
                user_id=given.user, project_id=given.project, sessions=sessions, embeddings=embeddings
            ):
                out.write(json_text(line) + "\n")
                done += 1
                progress(done)
        out.flush()
    return done
