"""recollect export"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TextIO

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.new_file import open_new_file
from recollect.cli.progress import Progress
from recollect.cli.records import pluralize
from recollect.cli.terminal import json_text, print_json, print_line

_EXPORTED_KINDS = ("memories", "turns", "superseded", "review", "forgotten")


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
@pass_cli
def export(cli: CliContext, file: str, force: bool, sessions: bool, embeddings: bool) -> None:
    """Write memories and turns out as JSON Lines.

    To FILE, or to standard output: all memories and turns, in whatever state, oldest first, then how sessions stand.
    A backup has the history too.
    """
    if cli.project and not cli.user:
        raise click.UsageError("A project is some user's: give --user as well.", click.get_current_context())
    options = {"sessions": sessions, "embeddings": embeddings}
    if file == "-":
        asyncio.run(_write_export(cli, sys.stdout, **options))
        return
    with open_new_file(Path(file), force=force) as out:
        count = asyncio.run(_write_export(cli, out, **options))
    if cli.json:
        print_json({"exported": count, "file": file})
    else:
        print_line(f"Exported {pluralize(count, 'line')} to {file}")


async def _write_export(cli: CliContext, out: TextIO, *, sessions: bool, embeddings: bool) -> int:
    async with cli.open_async() as memory:
        counts = await memory.stats(cli.user)
        total = None if cli.project else sum(counts.get(name, 0) for name in _EXPORTED_KINDS)
        done = 0
        with Progress("Exporting", total=total) as progress:
            async for line in memory.export(
                user_id=cli.user, project_id=cli.project, sessions=sessions, embeddings=embeddings
            ):
                out.write(json_text(line) + "\n")
                done += 1
                progress(done)
        out.flush()
    return done
