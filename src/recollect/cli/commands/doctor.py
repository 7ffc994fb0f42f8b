"""recollect doctor"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from recollect.cli import checks
from recollect.cli.checks import Check, Examination, State
from recollect.cli.command import Command
from recollect.cli.given import Given, listen_to_log, pass_given
from recollect.cli.terminal import Piece, dim, print_json, say
from recollect.errors import InvalidInput, RecollectError

if TYPE_CHECKING:
    from recollect.ledger.protocol import Ledger
    from recollect.models.embedding import Embedder
    from recollect.settings import Settings

_COLOURS = {State.OK: "green", State.WARN: "yellow", State.FAIL: "red"}


@click.command(cls=Command, examples=("recollect doctor", "recollect doctor --mend"))
@click.option("--mend", is_flag=True, help="Make the full text anew, then check.")
@pass_given
def doctor(given: Given, mend: bool) -> None:
    """Check that everything works, and say how to mend what does not.

    Nothing is changed without --mend. What is broken gives the exit code; a warning does not.
    """
    listen_to_log(verbose=given.verbose)
    examination = Examination(tell=(lambda check: None) if given.json else _say)
    asyncio.run(_examine(given, examination, mend=mend))
    if given.json:
        told = [asdict(check) for check in examination.checks]
        print_json({"ok": not examination.code, "checks": told})
    elif not examination.code:
        warned = any(check.state is State.WARN for check in examination.checks)
        say(dim("It works; see the warnings." if warned else "All is well."))
    click.get_current_context().exit(examination.code)


async def _examine(given: Given, examination: Examination, *, mend: bool) -> None:
    """Settings, folder, embedder, ledger, search: each as far as those before allow."""
    checks.check_versions(examination)
    try:
        settings = given.load().settings
    except InvalidInput as error:
        examination.fail_with("settings", error)
        return
    examination.note("settings", "read and understood")
    embedder = await checks.check_embedder(examination, settings)
    await checks.check_llm(examination, settings)
    await checks.check_learning(examination, settings)
    try:
        ledger = await _open(examination, settings, embedder)
        if ledger is not None:
            try:
                await _examine_ledger(given, examination, ledger, embedder, mend=mend)
            finally:
                await ledger.close()
    except RecollectError as error:
        examination.fail_with("ledger", error)
    finally:
        if embedder is not None:
            await embedder.close()


async def _open(examination: Examination, settings: Settings, embedder: Embedder | None) -> Ledger | None:
    """The ledger, if there is one yet; to look must not make one."""
    from recollect.models.embedding import EmbeddingModel
    from recollect.wiring import ledger_path, open_ledger

    is_file = "://" not in settings.database and settings.database != "memory:"
    path = ledger_path(settings)
    if is_file:
        checks.check_folder(examination, path.parent)
        if not path.exists():
            examination.note("ledger", f"none yet at {path}; the first recollect add makes it")
            return None
    # Without an embedder the ledger can still be looked at; it only has to be told of some model.
    ledger = await open_ledger(settings, embedder.model if embedder else EmbeddingModel("none", 1))
    schema = _schema("sqlite" if is_file else "postgres")
    examination.note("ledger", f"{path if is_file else 'the database'} opens, schema {schema}")
    return ledger


def _schema(dialect: str) -> int:
    from recollect.ledger.sql.migrate import migrations

    return max(migrations(dialect))


async def _examine_ledger(
    given: Given, examination: Examination, ledger: Ledger, embedder: Embedder | None, *, mend: bool
) -> None:
    await checks.check_ledger(examination, ledger, mend=mend)
    await checks.check_jobs(examination, ledger)
    if embedder is not None:
        await checks.check_vectors(examination, ledger, embedder)
        await checks.check_search(examination, ledger, embedder, given.user)
        if given.load().settings.index == "pgvector":
            await checks.check_pgvector(examination, ledger, embedder.model)


def _say(check: Check) -> None:
    say(Piece(check.state.ljust(4), _COLOURS[check.state]), "  ", check.name.ljust(11), check.message)
    if check.mend:
        say(" " * 17, dim(f"to mend: {check.mend}"))
