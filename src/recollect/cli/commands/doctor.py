"""recollect doctor: checks of the installation, each with a remedy."""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import click

from recollect import __version__
from recollect.cli.context import CliContext, ExitCode, command, exit_code_for
from recollect.cli.output import StyledText, dim, print_line
from recollect.config.settings import Settings, ledger_path
from recollect.errors import RecollectError
from recollect.http.upstream.learning import WITHOUT_LLM, describe_access
from recollect.models.chat import Chat
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


@command("recollect doctor", "recollect doctor --mend")
@click.option("--mend", is_flag=True, help="Rebuild the full-text index, then check.")
def doctor(cli: CliContext, mend: bool) -> None:
    """Check the installation, and print a remedy for each problem.

    Nothing is changed without --mend. The first failure determines the exit code; warnings do not.
    """
    checks: list[CheckResult] = []

    async def run() -> None:
        async for check in _run_checks(cli, mend=mend):
            checks.append(check)
            if not cli.json:
                _print_check(check)

    asyncio.run(run())
    code = next((exit_code_for(check.error) for check in checks if check.state == "fail"), ExitCode.OK)
    names = ("name", "state", "message", "mend")
    if not cli.replied({"ok": not code, "checks": [{n: getattr(check, n) for n in names} for check in checks]}):
        has_warnings = any(check.state == "warn" for check in checks)
        if not code:
            print_line(dim("It works; see the warnings." if has_warnings else "All is well."))
    click.get_current_context().exit(code)


def _print_check(check: CheckResult) -> None:
    print_line(StyledText(check.state.ljust(4), _COLOURS[check.state]), "  ", check.name.ljust(11), check.message)
    if check.mend:
        print_line(" " * 17, dim(f"to mend: {check.mend}"))


async def _run_checks(cli: CliContext, *, mend: bool) -> AsyncIterator[CheckResult]:
    """Check settings, models and ledger, each as far as the ones before allow."""
    yield CheckResult("versions", _describe_versions())
    part = "settings"
    async with AsyncExitStack() as opened:
        try:
            settings = cli.settings()
            yield CheckResult(part, "valid")
            embedder = None
            try:
                embedder = await open_embedder(settings)
                opened.push_async_callback(embedder.close)
                yield await check_embedder(embedder)
            except RecollectError as error:
                yield failed_check("embedder", error, mend=EMBEDDER_REMEDY)
            if (chat := open_chat(settings)) is not None:
                yield await _check_llm(chat)
            yield await _check_learning(settings)
            part = "ledger"
            async for check in _check_ledger(cli, settings, embedder, opened, mend=mend):
                yield check
        except RecollectError as error:
            yield failed_check(part, error)


def _describe_versions() -> str:
    import apsw
    import numpy

    python, sqlite = platform.python_version(), apsw.sqlite_lib_version()
    versions = f"Python {python}, SQLite {sqlite}, apsw {apsw.apsw_version()}, numpy {numpy.__version__}"
    return f"recollect {__version__}, {versions}"


async def _check_llm(chat: Chat) -> CheckResult:
    started = time.perf_counter()
    try:
        await chat.complete([{"role": "user", "content": "Say yes."}], max_tokens=256, timeout_s=_LLM_TIMEOUT_S)
    except RecollectError as error:
        mend = "check llm, llm_url and llm_api_key; until then turns wait to be learned from"
        return CheckResult("llm", str(error), "warn", mend)
    finally:
        await chat.close()
    return CheckResult("llm", f"{chat.model} answered in {time.perf_counter() - started:.1f} s")


async def _check_learning(settings: Settings) -> CheckResult:
    """Report how a server with these settings learns, and how to improve that."""
    described = await describe_access(settings)
    # A reason follows if the upstream was meant to be used.
    lacks_access = described.startswith(WITHOUT_LLM) and described != WITHOUT_LLM
    mend = "set llm, or upstream_api_key for the endpoint that chats are sent to" if lacks_access else ""
    return CheckResult("learning", described, mend=mend)


async def _check_ledger(
    cli: CliContext, settings: Settings, embedder: Embedder | None, opened: AsyncExitStack, *, mend: bool
) -> AsyncIterator[CheckResult]:
    """Check the ledger if it exists; a check must not create one."""
    is_file = "://" not in settings.database and settings.database != "memory:"
    path = ledger_path(settings)
    if is_file:
        for result in check_folder(path.parent):
            yield result
        if not path.exists():
            yield CheckResult("ledger", f"none yet at {path}; the first recollect add creates it")
            return
    # Without an embedder the ledger can be checked with any model.
    ledger = await open_ledger(settings, embedder.model if embedder else EmbeddingModel("none", 1))
    opened.push_async_callback(ledger.close)
    schema = schema_version("sqlite" if is_file else "postgres")
    yield CheckResult("ledger", f"{path if is_file else 'the database'} opens, schema {schema}")
    async for result in check_store(ledger, embedder, user=cli.user, index=settings.index, mend=mend):
        yield result
