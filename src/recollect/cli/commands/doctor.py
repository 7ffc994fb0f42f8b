"""recollect doctor"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from recollect.cli import checks
from recollect.cli.checks import CheckResult, CheckState, Diagnosis
from recollect.cli.context import CliContext, Command, configure_logging, pass_cli
from recollect.cli.terminal import StyledText, dim, print_json, print_line
from recollect.errors import InvalidInput, RecollectError

if TYPE_CHECKING:
    from recollect.config.settings import Settings
    from recollect.ledger.protocol import Ledger
    from recollect.models.embedding import Embedder


_COLOURS = {CheckState.OK: "green", CheckState.WARN: "yellow", CheckState.FAIL: "red"}


@click.command(cls=Command, examples=("recollect doctor", "recollect doctor --mend"))
@click.option("--mend", is_flag=True, help="Make the full text anew, then check.")
@pass_cli
def doctor(cli: CliContext, mend: bool) -> None:
    """Check that everything works, and say how to mend what does not.

    Nothing is changed without --mend. What is broken gives the exit code; a warning does not.
    """
    configure_logging(verbose=cli.verbose)
    diagnosis = Diagnosis(on_result=(lambda check: None) if cli.json else _print_check)
    asyncio.run(_diagnose(cli, diagnosis, mend=mend))
    if cli.json:
        results = [asdict(check) for check in diagnosis.checks]
        print_json({"ok": not diagnosis.exit_code, "checks": results})
    elif not diagnosis.exit_code:
        has_warnings = any(check.state is CheckState.WARN for check in diagnosis.checks)
        print_line(dim("It works; see the warnings." if has_warnings else "All is well."))
    click.get_current_context().exit(diagnosis.exit_code)


async def _diagnose(cli: CliContext, diagnosis: Diagnosis, *, mend: bool) -> None:
    """Settings, folder, embedder, ledger, search: each as far as those before allow."""
    checks.check_versions(diagnosis)
    try:
        settings = cli.load().settings
    except InvalidInput as error:
        diagnosis.fail_with_error("settings", error)
        return
    diagnosis.add("settings", "read and understood")
    embedder = await checks.check_embedder(diagnosis, settings)
    await checks.check_llm(diagnosis, settings)
    await checks.check_learning(diagnosis, settings)
    try:
        ledger = await _open_existing_ledger(diagnosis, settings, embedder)
        if ledger is not None:
            try:
                await _diagnose_ledger(cli, diagnosis, ledger, embedder, mend=mend)
            finally:
                await ledger.close()
    except RecollectError as error:
        diagnosis.fail_with_error("ledger", error)
    finally:
        if embedder is not None:
            await embedder.close()


async def _open_existing_ledger(diagnosis: Diagnosis, settings: Settings, embedder: Embedder | None) -> Ledger | None:
    """The ledger, if there is one yet; to look must not make one."""
    from recollect.models.embedding import EmbeddingModel
    from recollect.wiring import ledger_path, open_ledger

    is_file = "://" not in settings.database and settings.database != "memory:"
    path = ledger_path(settings)
    if is_file:
        checks.check_folder(diagnosis, path.parent)
        if not path.exists():
            diagnosis.add("ledger", f"none yet at {path}; the first recollect add makes it")
            return None
    # Without an embedder the ledger can still be looked at; it only has to be told of some model.
    ledger = await open_ledger(settings, embedder.model if embedder else EmbeddingModel("none", 1))
    schema = _schema_version("sqlite" if is_file else "postgres")
    diagnosis.add("ledger", f"{path if is_file else 'the database'} opens, schema {schema}")
    return ledger


def _schema_version(dialect: str) -> int:
    from recollect.ledger.sql.migrate import migrations

    return max(migrations(dialect))


async def _diagnose_ledger(
    cli: CliContext, diagnosis: Diagnosis, ledger: Ledger, embedder: Embedder | None, *, mend: bool
) -> None:
    await checks.check_ledger(diagnosis, ledger, mend=mend)
    await checks.check_jobs(diagnosis, ledger)
    if embedder is not None:
        await checks.check_vectors(diagnosis, ledger, embedder)
        await checks.check_search(diagnosis, ledger, embedder, cli.user)
        if cli.load().settings.index == "pgvector":
            await checks.check_pgvector(diagnosis, ledger, embedder.model)


def _print_check(check: CheckResult) -> None:
    print_line(StyledText(check.state.ljust(4), _COLOURS[check.state]), "  ", check.name.ljust(11), check.message)
    if check.mend:
        print_line(" " * 17, dim(f"to mend: {check.mend}"))
