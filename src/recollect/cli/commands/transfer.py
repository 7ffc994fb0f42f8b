"""recollect backup"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import click

from recollect.cli.context import CliContext, Command, configure_logging, pass_cli
from recollect.cli.exit_codes import ExitCode
from recollect.cli.progress import Progress
from recollect.cli.receipts import ask_confirmation, read_receipts
from recollect.cli.rendering import format_short_time, pluralize
from recollect.cli.streams import open_new_file
from recollect.cli.terminal import dim, json_text, print_json, print_line
from recollect.errors import InvalidInput
from recollect.transfer.importers.items import ImportReport
from recollect.transfer.importers.registry import IMPORTERS, recognise_source

if TYPE_CHECKING:
    from recollect.ledger.backup_file import Backup


_REPORTED_TABLES = ("users", "memories", "history", "vectors", "conversations", "jobs")


@click.group()
def backup() -> None:
    """Make, verify and restore backups of everything."""


@backup.command(cls=Command, scope_options="", examples=("recollect backup make monday.backup",))
@click.argument("file")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@pass_cli
def make(cli: CliContext, file: str, force: bool) -> None:
    """Write all there is to one file, while it is used.

    What was acknowledged before the command began is in it: everyone's memories in every state with their history,
    vectors, sessions, jobs, and what stands for the server's keys. Keep it as safe as the ledger.
    """
    with cli.open() as memory, Progress("Backing up", total=100) as progress:
        made = memory.admin.backup(file, force=force, progress=_percent_callback(progress))
    _print_backup(cli, made, f"Backed up to {file}")


@backup.command(
    cls=Command,
    scope_options="",
    examples=("recollect backup make tuesday.backup", "recollect backup verify tuesday.backup"),
)
@click.argument("file")
@pass_cli
def verify(cli: CliContext, file: str) -> None:
    """Tell whether a backup is whole, readable and unchanged.

    Every byte is held against the seal it was given, every page is looked at, all rows are counted.
    """
    from recollect.ledger.backup_file import verify_backup as verified

    info = verified(Path(file))
    _print_backup(cli, info, f"{file} is whole, made {format_short_time(info.made_at)}")


@backup.command(
    cls=Command,
    scope_options="",
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
    from recollect.transfer.restore import restore as restored

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


_EXPORTED_KINDS = ("memories", "turns", "superseded", "review", "forgotten")


@click.command(
    cls=Command,
    scope_options="everyone project",
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
        counts = await memory.admin.stats(cli.user)
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


_MAX_EXAMPLES = 3
_MAX_REASONS = 20


def _print_import_report(cli: CliContext, report: ImportReport) -> None:
    """Say what it was, what of it is new, and all that was left out with the reasons."""
    if cli.json:
        print_json(report.to_dict())
        return
    print_line(f"{report.kind}: ", dim(report.why))
    counts = [
        pluralize(report.memories, "memory", "memories"),
        f"{pluralize(report.turns, 'turn')} in {pluralize(report.sessions, 'session')}",
    ]
    owners = f" of user {', '.join(report.users[:10])}{' and others' if len(report.users) > 10 else ''}"
    print_line(f"Found {', '.join(counts)}{owners if report.users else ''}.")
    verb = "Would add" if report.dry_run else "Added"
    print_line(f"{verb} {report.added:,}; {report.present:,} were there already.")
    if report.kept:
        print_line(f"{pluralize(report.kept, 'fact')} here were surer, and stayed.")
    if report.redacted:
        print_line(f"Secrets {'would be' if report.dry_run else 'were'} kept out of {report.redacted:,}.")
    if report.learning and not report.dry_run:
        print_line(
            f"{pluralize(report.learning, 'session')} will be learned from by and by; recollect jobs shows it."
        )
    reasons = list(report.left.items())
    for why, count in reasons[:_MAX_REASONS]:
        print_line(f"Left out {count:,}: {why}")
        for each in [each for each in report.named if each.why == why][:_MAX_EXAMPLES]:
            print_line(dim(f"  {each.where}"))
    if len(reasons) > _MAX_REASONS:
        print_line(
            f"Left out {sum(count for _, count in reasons[_MAX_REASONS:]):,} for other reasons; --json tells all."
        )
    if report.dry_run:
        print_line("Nothing was written.")


_READ_BYTES = 1 << 20


@click.command(
    "import",
    cls=Command,
    scope_options="",
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
        report = memory.acting_as("cli").admin.import_from(
            source, user_id=owner, learn=learn, dry_run=dry_run, progress=progress, **options
        )
    _print_import_report(cli, report)
    if report.refused:
        raise click.exceptions.Exit(ExitCode.INVALID)


def _is_export(source: str, kind: str) -> bool:
    from recollect.transfer.importers.source import ImportSource

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
        result = memory.acting_as("cli").import_(_parse_lines(lines, done), user_id=owner, progress=done)
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
                f"line {blank or number} is not JSON: {_describe_json_error(error)}; "
                f"the {done.lines:,} lines before are imported"
            ) from None


def _describe_json_error(error: Exception) -> str:
    match error:
        case json.JSONDecodeError():
            return f"{error.msg} at column {error.colno}"
        case UnicodeDecodeError():
            return f"byte {error.start} is not UTF-8"
        case _:
            return str(error)
