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
from recollect.cli.exit_codes import ExitCode
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.moved_in import _print_import_report
from recollect.cli.progress import Progress
from recollect.cli.records import pluralize
from recollect.cli.terminal import print_json, print_line
from recollect.errors import InvalidInput
from recollect.movein.registry import IMPORTERS, recognise_source

_READ_BYTES = 1 << 20


@click.command(
    "import",
    cls=Command,
    whose="",
    examples=(
        "recollect import memories.jsonl",
        "cat alex.jsonl | recollect import --user alexandra",
        "recollect import notes.md --user alex --dry-run",
    ),
)
@click.argument("source", metavar="[SOURCE]", default="-")
@click.option("--from", "kind", type=click.Choice(["auto", *IMPORTERS]), default="auto", help="What SOURCE is of.")
@click.option("--user", "-u", "owner", metavar="ID", help="Make all of it this user's, whoever it names.")
@click.option("--of", "of", metavar="ID", multiple=True, help="Only what it says is this user's; can be repeated.")
@click.option("--everyone", is_flag=True, help="Keep everyone it names under their names.")
@click.option("--project", metavar="ID", help="Put it into this project.")
@click.option("--learn", is_flag=True, help="Have what was said learned from afterwards, when there is time for it.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be brought in.")
@click.option("--token", metavar="KEY", envvar="MEM0_API_KEY", help="The key of an API; or set MEM0_API_KEY.")
@pass_cli
def import_(
    cli: CliContext,
    source: str,
    kind: str,
    owner: str | None,
    of: tuple[str, ...],
    everyone: bool,
    project: str | None,
    learn: bool,
    dry_run: bool,
    token: str | None,
) -> None:
    """Bring in memories: what export wrote, or what another product keeps.

    SOURCE is a file, a folder, a zip archive, the address of mem0's API or of a PostgreSQL database, or standard
    input for lines of ours. Doing it twice changes nothing. Of other products' memories say whose they become with
    --user, or keep the users they name with --of or --everyone. docs/moving.md has two commands for each product.
    """
    owner = owner or cli.user
    is_export = source == "-" or _is_export(source, kind)
    if source == "-" or (is_export and not (of or dry_run or project or everyone or learn)):
        _import_lines(cli, source, owner)
        return
    # Lines of ours say themselves whose they are.
    everyone = everyone or (is_export and owner is None and not of)
    options: dict[str, Any] = {"kind": kind, "of": of, "everyone": everyone, "project_id": project, "token": token}
    with cli.open() as memory, Progress("Looking" if dry_run else "Importing") as progress:
        report = memory.import_from(
            source, user_id=owner, learn=learn, dry_run=dry_run, by="cli", progress=progress, **options
        )
    _print_import_report(cli, report)
    if report.refused:
        raise click.exceptions.Exit(ExitCode.INVALID)


def _is_export(source: str, kind: str) -> bool:
    from recollect.movein.source import ImportSource

    candidate = ImportSource(source)
    if kind != "auto" or candidate.is_address:
        return kind == "recollect"
    try:
        return recognise_source(candidate)[0] == "recollect"
    except InvalidInput:
        # A file that is like nothing else is taken for lines of ours, which say what is wrong with them.
        return not candidate.path.is_dir()
    finally:
        candidate.close()


def _import_lines(cli: CliContext, file: str, owner: str | None) -> None:
    with (
        _open_lines(file) as lines,
        cli.open() as memory,
        Progress("Importing", total=_count_lines(lines)) as progress,
    ):
        done = _LineProgress(progress)
        result = memory.import_(_parse_lines(lines, done), user_id=owner, by="cli", progress=done)
    if cli.json:
        print_json(asdict(result))
        return
    print_line(f"Added {pluralize(result.added, 'memory', 'memories')}; {result.present:,} were there already.")
    if result.kept:
        print_line(f"{pluralize(result.kept, 'fact')} here were surer than the ones in the file, and stayed.")
    if result.redacted:
        print_line(f"Secrets were kept out of {pluralize(result.redacted, 'memory', 'memories')}.")


def _open_lines(file: str) -> AbstractContextManager[BinaryIO]:
    if file == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise click.UsageError("Name a file, or pipe the lines in.", click.get_current_context())
        return nullcontext(sys.stdin.buffer)
    try:
        return open(file, "rb")
    except OSError as error:
        raise click.FileError(file, error.strerror or "") from None


def _count_lines(file: BinaryIO) -> int | None:
    """How many lines are still to come, for the bar; None where nobody sees one, or the lines come only once."""
    if not sys.stderr.isatty() or not file.seekable():
        return None
    start, lines, last = file.tell(), 0, b"\n"
    while piece := file.read(_READ_BYTES):
        lines, last = lines + piece.count(b"\n"), piece[-1:]
    file.seek(start)
    return lines + (last != b"\n")


class _LineProgress:
    """How many lines are safely in; told to the person, and named when a later line is wrong."""

    def __init__(self, progress: Progress) -> None:
        self.lines = 0
        self._progress = progress

    def __call__(self, lines: int) -> None:
        self.lines = lines
        self._progress(lines)


def _parse_lines(file: Iterable[bytes], done: _LineProgress) -> Iterator[dict[str, Any]]:
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
                f"line {blank or number} is not JSON: {_describe_json_error(error)}; the {done.lines:,} lines before are imported"
            ) from None


def _describe_json_error(error: Exception) -> str:
    match error:
        case json.JSONDecodeError():
            return f"{error.msg} at column {error.colno}"
        case UnicodeDecodeError():
            return f"byte {error.start} is not UTF-8"
        case _:
            return str(error)
