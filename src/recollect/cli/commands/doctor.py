"""recollect doctor: checks of the installation, each with a remedy."""

from __future__ import annotations

import asyncio
import platform
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import click

from recollect import __version__
from recollect.cli.context import CliContext, ExitCode, command, exit_code_for
from recollect.cli.output import StyledText, dim, print_json, print_line
from recollect.config.settings import Settings, ledger_path
from recollect.errors import RecollectError
from recollect.http.upstream.learning import WITHOUT_LLM, describe_access
from recollect.models.embedding import Embedder, EmbeddingModel
from recollect.service.diagnosis import (
    EMBEDDER_REMEDY,
    CheckResult,
    check_embedder,
    check_folder,
    check_store,
    failed_check,
    schema_version,
)
from recollect.wiring import open_chat, open_embedder, open_ledger

_LLM_TIMEOUT_S = 15.0
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@dataclass(slots=True)
class Diagnosis:
    """The results so far, printed as they come unless `quiet`, and the exit code of the first failure."""

    quiet: bool
    checks: list[dict[str, Any]] = field(default_factory=list)
    exit_code: ExitCode = ExitCode.OK

    def add(self, result: CheckResult) -> None:
        name, state, message, mend = result.name, result.state, result.message, result.mend
        self.checks.append({"name": name, "state": state, "message": message, "mend": mend})
        if state == "fail":
            self.exit_code = self.exit_code or exit_code_for(result.error)
        if self.quiet:
            return
        print_line(StyledText(state.ljust(4), _COLOURS[state]), "  ", name.ljust(11), message)
        if mend:
            print_line(" " * 17, dim(f"to mend: {mend}"))

    def fail(self, name: str, error: RecollectError, *, mend: str = "") -> None:
        """Record an error as a failure."""
        self.add(failed_check(name, error, mend=mend))


@command("recollect doctor", "recollect doctor --mend")
@click.option("--mend", is_flag=True, help="Rebuild the full-text index, then check.")
def doctor(cli: CliContext, mend: bool) -> None:
    """Check the installation, and print a remedy for each problem.

    Nothing is changed without --mend. The first failure determines the exit code; warnings do not.
    """
    diagnosis = Diagnosis(quiet=cli.json)
    asyncio.run(_run_checks(cli, diagnosis, mend=mend))
    if cli.json:
        print_json({"ok": not diagnosis.exit_code, "checks": diagnosis.checks})
    elif not diagnosis.exit_code:
        has_warnings = any(check["state"] == "warn" for check in diagnosis.checks)
        print_line(dim("It works; see the warnings." if has_warnings else "All is well."))
    click.get_current_context().exit(diagnosis.exit_code)


async def _run_checks(cli: CliContext, diagnosis: Diagnosis, *, mend: bool) -> None:
    """Check settings, models and ledger, each as far as the ones before allow."""
    diagnosis.add(CheckResult("versions", _describe_versions()))
    part = "settings"
    async with AsyncExitStack() as opened:
        try:
            settings = cli.settings()
            diagnosis.add(CheckResult(part, "valid"))
            embedder = await _check_embedder(diagnosis, settings, opened)
            await _check_llm(diagnosis, settings)
            await _check_learning(diagnosis, settings)
            part = "ledger"
            if (ledger := await _open_existing_ledger(diagnosis, settings, embedder)) is not None:
                opened.push_async_callback(ledger.close)
                async for result in check_store(ledger, embedder, user=cli.user, index=settings.index, mend=mend):
                    diagnosis.add(result)
        except RecollectError as error:
            diagnosis.fail(part, error)


def _describe_versions() -> str:
    import apsw
    import numpy

    python, sqlite = platform.python_version(), apsw.sqlite_lib_version()
    versions = f"Python {python}, SQLite {sqlite}, apsw {apsw.apsw_version()}, numpy {numpy.__version__}"
    return f"recollect {__version__}, {versions}"


async def _check_embedder(diagnosis: Diagnosis, settings: Settings, opened: AsyncExitStack) -> Embedder | None:
    """Check that the embedder answers; return it if it could be opened."""
    try:
        embedder = await open_embedder(settings)
    except RecollectError as error:
        diagnosis.fail("embedder", error, mend=EMBEDDER_REMEDY)
        return None
    opened.push_async_callback(embedder.close)
    diagnosis.add(await check_embedder(embedder))
    return embedder


async def _check_llm(diagnosis: Diagnosis, settings: Settings) -> None:
    chat = open_chat(settings)
    if chat is None:
        return
    started = time.perf_counter()
    try:
        await chat.complete([{"role": "user", "content": "Say yes."}], max_tokens=256, timeout_s=_LLM_TIMEOUT_S)
    except RecollectError as error:
        mend = "check llm, llm_url and llm_api_key; until then turns wait to be learned from"
        diagnosis.add(CheckResult("llm", str(error), "warn", mend))
    else:
        elapsed_s = time.perf_counter() - started
        diagnosis.add(CheckResult("llm", f"{chat.model} answered in {elapsed_s:.1f} s"))
    finally:
        await chat.close()


async def _check_learning(diagnosis: Diagnosis, settings: Settings) -> None:
    """Report how a server with these settings learns, and how to improve that."""
    described = await describe_access(settings)
    # A reason follows if the upstream was meant to be used.
    lacks_access = described.startswith(WITHOUT_LLM) and described != WITHOUT_LLM
    mend = "set llm, or upstream_api_key for the endpoint that chats are sent to" if lacks_access else ""
    diagnosis.add(CheckResult("learning", described, mend=mend))


async def _open_existing_ledger(diagnosis: Diagnosis, settings: Settings, embedder: Embedder | None) -> Any:
    """Open the ledger if it exists; a check must not create one."""
    is_file = "://" not in settings.database and settings.database != "memory:"
    path = ledger_path(settings)
    if is_file:
        for result in check_folder(path.parent):
            diagnosis.add(result)
        if not path.exists():
            diagnosis.add(CheckResult("ledger", f"none yet at {path}; the first recollect add creates it"))
            return None
    # Without an embedder the ledger can be checked with any model.
    ledger = await open_ledger(settings, embedder.model if embedder else EmbeddingModel("none", 1))
    schema = schema_version("sqlite" if is_file else "postgres")
    diagnosis.add(CheckResult("ledger", f"{path if is_file else 'the database'} opens, schema {schema}"))
    return ledger
