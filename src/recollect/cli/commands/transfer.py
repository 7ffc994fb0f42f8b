"""recollect backup, export and import."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from recollect.cli.commands.store import read_receipts
from recollect.cli.context import DEFAULT_USER, CliContext, ExitCode, command, usage_error
from recollect.cli.options import open_new_file
from recollect.cli.output import ProgressBar, dim, format_short_time, json_text, pluralize, print_line
from recollect.transfer.importers.items import IMPORTERS, TRANSCRIPT_FOLDERS, ImportReport, recognise_source

if TYPE_CHECKING:
    from recollect.service.transfer import Backup

_REPORTED_TABLES = ("users", "memories", "history", "vectors", "conversations", "jobs")


@click.group()
def backup() -> None:
    """Make, verify and restore backups of everything."""


@command("recollect backup make monday.backup", scope="", group=backup)
@click.argument("file")
@click.option("--force", is_flag=True, help="Replace an existing file.")
def make(cli: CliContext, file: str, force: bool) -> None:
    """Write everything to one file, while the ledger is in use.

    It contains all that was acknowledged before the command began: memories of all users in every state with their
    history, vectors, sessions, jobs, and hashes of the API keys. Protect it like the ledger.
    """
    with cli.open() as memory, ProgressBar("Backing up", total=100) as progress:
        made = memory.admin.backup(file, force=force, progress=_percent_callback(progress))
    _print_backup(cli, made, f"Backed up to {file}")


@command("recollect backup list", scope="", group=backup, name="list")
def list_backups(cli: CliContext) -> None:
    """List the newest backups of this ledger: when each was made, its file, and whether it is still there."""
    with cli.open() as memory:
        made = memory.admin.backups()
    if not made or cli.json:
        cli.reply({"results": made}, "No backup was made of this ledger: recollect backup make FILE")
        return
    for each in made:
        moment = format_short_time(datetime.fromisoformat(each["made_at"]))
        gone = "" if each["exists"] else "  (gone)"
        print_line(f"{moment}  {pluralize(each['bytes'], 'byte'):>18}  {each['file']}{gone}")


@command("recollect backup make tuesday.backup", "recollect backup verify tuesday.backup", scope="", group=backup)
@click.argument("file")
def verify(cli: CliContext, file: str) -> None:
    """Check that a backup is complete, readable and unchanged.

    The checksum and every page are verified, and all rows are counted.
    """
    from recollect.service.restore import verify_backup

    info = verify_backup(Path(file))
    _print_backup(cli, info, f"{file} is intact, made {format_short_time(info.made_at)}")


@command(
    "recollect backup make wednesday.backup",
    "recollect backup restore wednesday.backup --force --yes",
    scope="",
    group=backup,
)
@click.argument("file")
@click.option("--erasures", metavar="FILE", help="Later erasures, as `recollect erase --receipts --to` wrote them.")
@click.option("--force", is_flag=True, help="Replace an existing ledger, which is kept under another name.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def restore(cli: CliContext, file: str, erasures: str | None, force: bool, yes: bool) -> None:
    """Verify a backup and make it the ledger.

    Stop servers and workers first. Later erasures are repeated, and keys revoked later stay revoked: both are read
    from the replaced ledger, or from --erasures if it is lost. A PostgreSQL database must be empty; backups can be
    restored from SQLite to PostgreSQL and vice versa.
    """
    from recollect.service.restore import restore as restore_backup
    from recollect.wiring import open_service

    receipts = read_receipts(erasures) if erasures else None
    if force and not yes and not cli.confirm("Replace the existing ledger by the backup?"):
        print_line("Nothing was restored.", err=True)
        return
    settings = cli.settings()
    with ProgressBar("Restoring", total=100) as progress:
        callback = _percent_callback(progress)
        done = asyncio.run(
            restore_backup(Path(file), settings, open_service, erasures=receipts, force=force, progress=callback)
        )
    replaced = None if done.replaced is None else str(done.replaced)
    summary = {"erased_again": done.erased, "keys_revoked_again": done.revoked, "replaced": replaced}
    if cli.replied({**done.backup.to_dict(), **summary}):
        return
    _print_backup(cli, done.backup, f"Restored {file}, made {format_short_time(done.backup.made_at)}")
    if done.erased or done.revoked:
        print_line(f"  repeated later erasures: {done.erased:,}; revoked keys again: {done.revoked:,}")
    if replaced:
        print_line(dim(f"  the replaced ledger is {replaced}, with all its data; delete it later"))


def _percent_callback(progress: ProgressBar) -> Callable[[int, int], None]:
    return lambda done, total: progress(100 * done // max(1, total))


def _print_backup(cli: CliContext, info: Backup, headline: str) -> None:
    cli.reply(info.to_dict(), headline, dim(f"  {pluralize(info.size, 'byte')}"))
    if not cli.json:
        counts = ", ".join(f"{name} {info.rows[name]:,}" for name in _REPORTED_TABLES if info.rows.get(name))
        print_line(f"  {counts or 'empty'}")


_EXPORTED_KINDS = ("memories", "turns", "superseded", "review", "forgotten")


@command("recollect export memories.jsonl", "recollect export --user alex > alex.jsonl", scope="everyone project")
@click.argument("file", metavar="[FILE]", default="-")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option("--sessions/--no-sessions", default=True, help="Whether to include session states and summaries.")
@click.option("--embeddings", is_flag=True, help="Include vectors, which an import with the same model reuses.")
def export(cli: CliContext, file: str, force: bool, sessions: bool, embeddings: bool) -> None:
    """Write memories and turns as JSON Lines.

    To FILE, or to standard output: all memories and turns in every state, oldest first, then the sessions. A backup
    also has the history.
    """
    if cli.project and not cli.user:
        raise usage_error("--project needs --user.")
    options = {"sessions": sessions, "embeddings": embeddings}
    if file == "-":
        asyncio.run(_write_export(cli, sys.stdout, **options))
        return
    with open_new_file(Path(file), force=force) as out:
        count = asyncio.run(_write_export(cli, out, **options))
    cli.reply({"exported": count, "file": file}, f"Exported {pluralize(count, 'line')} to {file}")


async def _write_export(cli: CliContext, out: TextIO, **options: bool) -> int:
    async with cli.open_async() as memory:
        counts = await memory.admin.stats(cli.user)
        total = None if cli.project else sum(counts.get(name, 0) for name in _EXPORTED_KINDS)
        done = 0
        with ProgressBar("Exporting", total=total) as progress:
            async for line in memory.export(user_id=cli.user, project_id=cli.project, **options):
                out.write(json_text(line) + "\n")
                done += 1
                progress(done)
        out.flush()
    return done


@command(
    "recollect import memories.jsonl",
    "cat alex.jsonl | recollect import --user alexandra",
    "recollect import notes.md --user alex --dry-run",
    scope="",
    name="import",
)
@click.argument("source", metavar="[SOURCE]", default="-")
@click.option("--from", "kind", type=click.Choice(["auto", *IMPORTERS]), default="auto", help="The product.")
@click.option("--user", "-u", "owner", metavar="ID", help="Import everything as this user's.")
@click.option("--of", "of", metavar="ID", multiple=True, help="Only records of this user of SOURCE; can be repeated.")
@click.option("--everyone", is_flag=True, help="Import all users of SOURCE under their names.")
@click.option("--project", metavar="ID", help="Import into this project.")
@click.option("--learn", is_flag=True, help="Learn from the imported turns in the background.")
@click.option("--dry-run", is_flag=True, help="Only print what would be imported.")
@click.option("--token", metavar="KEY", envvar="MEM0_API_KEY", help="The key of an API; or set MEM0_API_KEY.")
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
    """Import memories from an export or from another product.

    SOURCE is a file, a folder, a zip archive, the address of mem0's API or of a PostgreSQL database, or standard
    input for an export. For claude-code, codex, gemini and cursor it is by default the folder of their transcripts;
    each session is imported into the project of its working folder. Importing twice changes nothing. For other
    products, name the new owner with --user, or keep their users with --of or --everyone. docs/moving.md has two
    commands for each product.
    """
    owner = owner or cli.user
    if kind in TRANSCRIPT_FOLDERS:
        # Transcripts are those of whoever runs this.
        owner = owner or (None if of or everyone else DEFAULT_USER)
        source = TRANSCRIPT_FOLDERS[kind] if source == "-" else source
    with ExitStack() as stack:
        if source == "-":
            source, kind = stack.enter_context(_save_stdin()), "recollect" if kind == "auto" else kind
        # The lines of an export name their users.
        everyone = everyone or (owner is None and not of and _is_export(source, kind))
        memory = stack.enter_context(cli.open())
        progress = stack.enter_context(ProgressBar("Reading" if dry_run else "Importing"))
        report = memory.acting_as("cli").admin.import_from(
            source,
            user_id=owner,
            kind=kind,
            of=of,
            everyone=everyone,
            project_id=project,
            learn=learn,
            dry_run=dry_run,
            token=token,
            progress=progress,
        )
    if not cli.replied(report.to_dict()):
        _print_import_report(report)
    if report.refused:
        raise click.exceptions.Exit(ExitCode.INVALID)


@contextmanager
def _save_stdin() -> Iterator[str]:
    """Copy standard input to a temporary file."""
    if sys.stdin is None or sys.stdin.isatty():
        raise usage_error("Name a file, or pipe the lines in.")
    with tempfile.TemporaryDirectory(prefix="recollect-import-") as folder:
        path = Path(folder, "stdin.jsonl")
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield str(path)


def _is_export(source: str, kind: str) -> bool:
    from recollect.transfer.importers.source import ImportSource

    if kind != "auto":
        return kind == "recollect"
    with closing(ImportSource(source)) as candidate:
        return not candidate.is_address and recognise_source(candidate)[0] == "recollect"


_MAX_EXAMPLES = 3
_MAX_REASONS = 20


def _print_import_report(report: ImportReport) -> None:
    """Print the counts, and what was left out with the reasons."""
    print_line(f"{report.kind}: ", dim(report.why))
    memories = pluralize(report.memories, "memory", "memories")
    turns = f"{pluralize(report.turns, 'turn')} in {pluralize(report.sessions, 'session')}"
    owners = f" of user {', '.join(report.users[:10])}{' and others' if len(report.users) > 10 else ''}"
    print_line(f"Found {memories}, {turns}{owners if report.users else ''}.")
    print_line(f"{'Would add' if report.dry_run else 'Added'} {report.added:,}; {report.present:,} existed already.")
    if report.kept:
        print_line(f"{pluralize(report.kept, 'existing fact')} had a higher confidence, and stayed.")
    if report.redacted:
        print_line(f"Secrets {'would be' if report.dry_run else 'were'} kept out of {report.redacted:,}.")
    if report.learning and not report.dry_run:
        sessions = pluralize(report.learning, "session")
        print_line(f"{sessions} will be learned from in the background; recollect jobs shows the progress.")
    reasons = list(report.left.items())
    for why, count in reasons[:_MAX_REASONS]:
        print_line(f"Left out {count:,}: {why}")
        for each in [each for each in report.named if each.why == why][:_MAX_EXAMPLES]:
            print_line(dim(f"  {each.where}"))
    if len(reasons) > _MAX_REASONS:
        others = sum(count for _, count in reasons[_MAX_REASONS:])
        print_line(f"Left out {others:,} for other reasons; --json lists all.")
    if report.dry_run:
        print_line("Nothing was written.")
