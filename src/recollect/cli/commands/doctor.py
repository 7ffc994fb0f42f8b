"""recollect doctor: checks of the installation, each with a remedy."""

from __future__ import annotations

import asyncio
import platform
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect import __version__
from recollect.cli.context import CliContext, command, pass_cli
from recollect.cli.exit_codes import ExitCode, exit_code_for
from recollect.cli.output import StyledText, dim, pluralize, print_json, print_line
from recollect.errors import InvalidInput, RecollectError, StoreCorrupt
from recollect.ledger.model_states import current_model_state, find_model_state
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import EVERYTHING, Listing
from recollect.model.scope import Scope

if TYPE_CHECKING:
    from recollect.config.settings import Settings
    from recollect.ledger.ledger import Ledger
    from recollect.models.embedding import Embedder, EmbeddingModel

_LOW_DISK_BYTES = 1 << 30
_MIN_DISK_BYTES = 64 << 20
_OVERDUE_S = 300.0
_LLM_TIMEOUT_S = 15.0


class CheckState(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


_COLOURS = {CheckState.OK: "green", CheckState.WARN: "yellow", CheckState.FAIL: "red"}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A line of the report; `mend` is the remedy."""

    name: str
    state: CheckState
    message: str
    mend: str = ""


@dataclass(slots=True)
class Diagnosis:
    """The results so far, printed as they come unless `quiet`, and the exit code of the first failure."""

    quiet: bool
    checks: list[CheckResult] = field(default_factory=list)
    exit_code: ExitCode = ExitCode.OK

    def add(self, name: str, message: str, *, state: CheckState = CheckState.OK, mend: str = "") -> None:
        """Record a result."""
        self.checks.append(CheckResult(name, state, message, mend))
        if self.quiet:
            return
        print_line(StyledText(state.ljust(4), _COLOURS[state]), "  ", name.ljust(11), message)
        if mend:
            print_line(" " * 17, dim(f"to mend: {mend}"))

    def warn(self, name: str, message: str, *, mend: str = "") -> None:
        """Record a warning."""
        self.add(name, message, state=CheckState.WARN, mend=mend)

    def fail(self, name: str, problem: str | Exception, *, code: ExitCode = ExitCode.OK, mend: str = "") -> None:
        """Record a failure; an exception has its own exit code."""
        if isinstance(problem, Exception):
            code, problem = exit_code_for(type(problem)), str(problem) or type(problem).__name__
        self.exit_code = self.exit_code or code
        self.add(name, problem, state=CheckState.FAIL, mend=mend)


@command("recollect doctor", "recollect doctor --mend")
@click.option("--mend", is_flag=True, help="Rebuild the full-text index, then check.")
@pass_cli
def doctor(cli: CliContext, mend: bool) -> None:
    """Check the installation, and print a remedy for each problem.

    Nothing is changed without --mend. The first failure determines the exit code; warnings do not.
    """
    diagnosis = Diagnosis(quiet=cli.json)
    asyncio.run(_diagnose(cli, diagnosis, mend=mend))
    if cli.json:
        print_json({"ok": not diagnosis.exit_code, "checks": [asdict(check) for check in diagnosis.checks]})
    elif not diagnosis.exit_code:
        has_warnings = any(check.state is CheckState.WARN for check in diagnosis.checks)
        print_line(dim("It works; see the warnings." if has_warnings else "All is well."))
    click.get_current_context().exit(diagnosis.exit_code)


async def _diagnose(cli: CliContext, diagnosis: Diagnosis, *, mend: bool) -> None:
    """Check settings, models and ledger, each as far as the ones before allow."""
    _check_versions(diagnosis)
    try:
        settings = cli.settings()
    except InvalidInput as error:
        diagnosis.fail("settings", error)
        return
    diagnosis.add("settings", "valid")
    embedder = await _check_embedder(diagnosis, settings)
    await _check_llm(diagnosis, settings)
    await _check_learning(diagnosis, settings)
    try:
        ledger = await _open_existing_ledger(diagnosis, settings, embedder)
        if ledger is not None:
            try:
                await _check_ledger(diagnosis, ledger, mend=mend)
                await _check_jobs(diagnosis, ledger)
                if embedder is not None:
                    await _check_vectors(diagnosis, ledger, embedder)
                    await _check_search(diagnosis, ledger, embedder, cli.user)
                    if settings.index == "pgvector":
                        await _check_pgvector(diagnosis, ledger, embedder.model)
            finally:
                await ledger.close()
    except RecollectError as error:
        diagnosis.fail("ledger", error)
    finally:
        if embedder is not None:
            await embedder.close()


def _check_versions(diagnosis: Diagnosis) -> None:
    import apsw
    import numpy

    python, sqlite = platform.python_version(), apsw.sqlite_lib_version()
    versions = f"Python {python}, SQLite {sqlite}, apsw {apsw.apsw_version()}, numpy {numpy.__version__}"
    diagnosis.add("versions", f"recollect {__version__}, {versions}")


async def _check_embedder(diagnosis: Diagnosis, settings: Settings) -> Embedder | None:
    """Check that the embedder answers."""
    from recollect.wiring import open_embedder

    embedder = None
    try:
        embedder = await open_embedder(settings)
        started = time.perf_counter()
        [vector] = await embedder.embed(["Does it answer?"], role="query")
    except RecollectError as error:
        diagnosis.fail("embedder", error, mend="see recollect config show for embedder, its URL and key")
        return embedder
    elapsed_ms = (time.perf_counter() - started) * 1000
    diagnosis.add("embedder", f"{embedder.model} answered in {elapsed_ms:.1f} ms with {len(vector)} numbers")
    return embedder


async def _check_llm(diagnosis: Diagnosis, settings: Settings) -> None:
    """Check that the LLM of the settings answers, if there is one."""
    from recollect.wiring import open_chat

    chat = open_chat(settings)
    if chat is None:
        return
    started = time.perf_counter()
    try:
        await chat.complete([{"role": "user", "content": "Say yes."}], max_tokens=256, timeout_s=_LLM_TIMEOUT_S)
    except RecollectError as error:
        mend = "check llm, llm_url and llm_api_key; until then turns wait to be learned from"
        diagnosis.warn("llm", str(error), mend=mend)
    else:
        diagnosis.add("llm", f"{chat.model} answered in {time.perf_counter() - started:.1f} s")
    finally:
        await chat.close()


async def _check_learning(diagnosis: Diagnosis, settings: Settings) -> None:
    """Report how a server with these settings learns, and how to improve that."""
    from recollect.http.upstream.learning import WITHOUT_LLM, describe_access

    described = await describe_access(settings)
    # A reason follows if the upstream was meant to be used.
    lacks_access = described.startswith(WITHOUT_LLM) and described != WITHOUT_LLM
    mend = "set llm, or upstream_api_key for the endpoint that chats are sent to" if lacks_access else ""
    diagnosis.add("learning", described, mend=mend)


async def _open_existing_ledger(diagnosis: Diagnosis, settings: Settings, embedder: Embedder | None) -> Ledger | None:
    """Open the ledger if it exists; a check must not create one."""
    from recollect.ledger.sql.migrate import migrations
    from recollect.models.embedding import EmbeddingModel
    from recollect.wiring import ledger_path, open_ledger

    is_file = "://" not in settings.database and settings.database != "memory:"
    path = ledger_path(settings)
    if is_file:
        _check_folder(diagnosis, path.parent)
        if not path.exists():
            diagnosis.add("ledger", f"none yet at {path}; the first recollect add creates it")
            return None
    # Without an embedder the ledger can be checked with any model.
    ledger = await open_ledger(settings, embedder.model if embedder else EmbeddingModel("none", 1))
    schema = max(migrations("sqlite" if is_file else "postgres"))
    diagnosis.add("ledger", f"{path if is_file else 'the database'} opens, schema {schema}")
    return ledger


def _check_folder(diagnosis: Diagnosis, folder: Path) -> None:
    """Check that the folder is writable and has free space."""
    from rich.filesize import decimal

    existing = next((each for each in (folder, *folder.parents) if each.exists()), Path("/"))
    try:
        if not existing.is_dir():
            raise NotADirectoryError(f"{existing} is not a folder")
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        mend = "give the folder write permission, or name another with --home"
        diagnosis.fail("home", f"{folder}: {error.strerror or error}", code=ExitCode.UNAVAILABLE, mend=mend)
        return
    diagnosis.add("home", f"{folder} is writable" if existing == folder else f"{folder} can be created")
    free = shutil.disk_usage(existing).free
    message = f"{decimal(free)} free"
    if free < _MIN_DISK_BYTES:
        diagnosis.fail("disk", message, code=ExitCode.UNAVAILABLE, mend="free some space before writing more")
    elif free < _LOW_DISK_BYTES:
        diagnosis.warn("disk", message, mend="free some space soon")
    else:
        diagnosis.add("disk", message)


async def _check_ledger(diagnosis: Diagnosis, ledger: Ledger, *, mend: bool) -> None:
    """Check the integrity of the ledger; with `mend`, rebuild its full-text index first."""
    if mend:
        await ledger.rebuild_terms()
        diagnosis.add("full text", "rebuilt")
    try:
        broken = await ledger.check()
    except StoreCorrupt as error:
        diagnosis.fail("integrity", error)
        return
    for problem in broken:
        diagnosis.fail("integrity", problem, code=ExitCode.DAMAGED)
    if not broken:
        counts = await ledger.stats()
        memories = pluralize(counts.get("memories", 0), "memory", "memories")
        turns, users = pluralize(counts.get("turns", 0), "turn"), pluralize(counts.get("users", 0), "user")
        diagnosis.add("integrity", f"no damage found in {memories} and {turns} of {users}")
    for warning in await ledger.security_warnings():
        diagnosis.warn("safety", warning)


async def _check_jobs(diagnosis: Diagnosis, ledger: Ledger) -> None:
    """Check that jobs are being run."""
    stats = await ledger.job_stats()
    message = f"{stats.waiting:,} waiting, {stats.running:,} running, {stats.dead:,} dead"
    if stats.dead:
        mend = "recollect jobs --state dead shows the errors; recollect jobs --replay all runs them again"
        diagnosis.warn("jobs", message, mend=mend)
    elif stats.oldest_due_age_s > _OVERDUE_S:
        late = f"{message}; one has been due for {stats.oldest_due_age_s:.0f} s"
        diagnosis.warn("jobs", late, mend="recollect worker runs them")
    else:
        diagnosis.add("jobs", message)


async def _check_vectors(diagnosis: Diagnosis, ledger: Ledger, embedder: Embedder) -> None:
    """Check that the model of the settings is searched, and that every memory has a vector of it."""
    from recollect.models.embedding import TOKEN_MODEL

    mend = "recollect reembed creates them; a server or a worker does so in the background"
    models, states = await ledger.models(), await ledger.model_states()
    searched, named = current_model_state(states), find_model_state(states, embedder.model)
    if searched is not None and searched.model != embedder.model:
        if named is not None and named.retired_at is not None:
            mend = "name it in the settings, or recollect reembed --back goes back"
        message = f"memories are searched by {searched.model}, and the settings name {embedder.model}"
        diagnosis.warn("vectors", message, mend=mend)
    elif await ledger.unembedded(embedder.model, limit=1):
        message = f"some memories have none of {embedder.model}; they are found by their words only"
        diagnosis.warn("vectors", message, mend=mend)
    else:
        current = models.pop(embedder.model, 0)
        encoded = models.pop(TOKEN_MODEL, 0)
        replaced = [f"{count:,} of {model}, replaced" for model, count in models.items()]
        message = f"{current:,}, all of the current model; {encoded:,} with token vectors"
        diagnosis.add("vectors", "; ".join((message, *replaced)))


async def _check_search(diagnosis: Diagnosis, ledger: Ledger, embedder: Embedder, user: str | None) -> None:
    """Check that a memory is found by its words and by its vector."""
    from rich.filesize import decimal

    from recollect.index.exact import ExactIndex

    record = await _any_memory(ledger, user)
    if record is None:
        diagnosis.add("search", "nothing to find yet")
        return
    scope, text = record.scope, record.content[:200]
    matches = await ledger.lexical(scope, text)
    if len(matches.rows) or not any(character.isalnum() for character in text):
        diagnosis.add("full text", f"finds a memory of user {scope.user} by its words")
    else:
        message = f"does not find memory {record.id} by its own words"
        diagnosis.fail("full text", message, code=ExitCode.DAMAGED, mend="recollect doctor --mend rebuilds it")
    index = ExactIndex(ledger, embedder.model, budget_bytes=0)
    started = time.perf_counter()
    [vector] = await embedder.embed([text], role="query")
    await (await index.view(scope, EVERYTHING)).nearest(vector, limit=1)
    elapsed_ms = (time.perf_counter() - started) * 1000
    diagnosis.add("index", f"user {scope.user} loaded in {elapsed_ms:.1f} ms, {decimal(index.nbytes)} of memory")
    await index.close()


async def _any_memory(ledger: Ledger, user: str | None) -> MemoryRecord | None:
    for name in [user] if user else (await ledger.users())[:20]:
        for record in await ledger.find(Scope(name), Listing(statuses=(Status.ACTIVE,), limit=1)):
            return record
    return None


async def _check_pgvector(diagnosis: Diagnosis, ledger: Ledger, model: EmbeddingModel) -> None:
    """Check that PostgreSQL searches for users with many memories."""
    from recollect.index.pgvector import open_pgvector

    state = await open_pgvector(ledger, model).state()
    if state.trouble:
        diagnosis.warn("pgvector", "search is exact, in memory", mend=state.trouble)
    elif state.users and not state.is_indexed:
        diagnosis.add("pgvector", "its index is incomplete; the next search of a large user rebuilds it")
    else:
        diagnosis.add("pgvector", f"{state.version}, with {pluralize(state.users, 'large user')}")
