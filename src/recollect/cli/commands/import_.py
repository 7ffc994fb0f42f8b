"""recollect import"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any, BinaryIO

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.progress import Progress
from recollect.cli.records import counted
from recollect.cli.terminal import print_json, say
from recollect.errors import InvalidInput

_PIECE = 1 << 20


@click.command(
    "import",
    cls=Command,
    whose="",
    examples=("recollect import memories.jsonl", "cat alex.jsonl | recollect import --user alexandra"),
)
@click.argument("file", metavar="[FILE]", default="-")
@click.option("--user", "-u", "owner", metavar="ID", help="Make all of it this user's, whoever the lines name.")
@pass_given
def import_(given: Given, file: str, owner: str | None) -> None:
    """Read in what export wrote; doing it twice changes nothing.

    From FILE, or from standard input: JSON Lines, one memory each. A line needs "memory" and "user_id"; the rest
    may be left out.
    """
    with (
        _opened(file) as lines,
        given.open() as memory,
        Progress("Importing", total=_how_many(lines)) as progress,
    ):
        done = _Done(progress)
        result = memory.import_(_lines(lines, done), user_id=owner or given.user, by="cli", progress=done)
    if given.json:
        print_json(asdict(result))
        return
    say(f"Added {counted(result.added, 'memory', 'memories')}; {result.present:,} were there already.")
    if result.kept:
        say(f"{counted(result.kept, 'fact')} here were surer than the ones in the file, and stayed.")
    if result.redacted:
        say(f"Secrets were kept out of {counted(result.redacted, 'memory', 'memories')}.")


def _opened(file: str) -> AbstractContextManager[BinaryIO]:
    if file == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise click.UsageError("Name a file, or pipe the lines in.", click.get_current_context())
        return nullcontext(sys.stdin.buffer)
    try:
        return open(file, "rb")
    except OSError as error:
        raise click.FileError(file, error.strerror or "") from None


def _how_many(file: BinaryIO) -> int | None:
    """How many lines are still to come, for the bar; None where nobody sees one, or the lines come only once."""
    if not sys.stderr.isatty() or not file.seekable():
        return None
    start, lines, last = file.tell(), 0, b"\n"
    while piece := file.read(_PIECE):
        lines, last = lines + piece.count(b"\n"), piece[-1:]
    file.seek(start)
    return lines + (last != b"\n")


class _Done:
    """How many lines are safely in; told to the person, and named when a later line is wrong."""

    def __init__(self, progress: Progress) -> None:
        self.lines = 0
        self._progress = progress

    def __call__(self, lines: int) -> None:
        self.lines = lines
        self._progress(lines)


def _lines(file: Iterable[bytes], done: _Done) -> Iterator[dict[str, Any]]:
    """The JSON objects of the lines; blank ones may only end the file, so that numbers stay true."""
    blank = 0
    for number, line in enumerate(file, 1):
        if not line.strip():
            blank = blank or number
            continue
        try:
            if blank:
                raise ValueError("it is empty")
            yield json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(
                f"line {blank or number} is not JSON: {_what(error)}; the {done.lines:,} lines before are imported"
            ) from None


def _what(error: Exception) -> str:
    match error:
        case json.JSONDecodeError():
            return f"{error.msg} at column {error.colno}"
        case UnicodeDecodeError():
            return f"byte {error.start} is not UTF-8"
        case _:
            return str(error)
