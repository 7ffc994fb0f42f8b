"""What doctor looks at: each check is told in a line, with how to mend what is wrong."""

from __future__ import annotations

import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from recollect import __version__
from recollect.cli.exit_codes import ExitCode, exit_code_for
from recollect.cli.rendering import pluralize
from recollect.errors import RecollectError, StoreCorrupt
from recollect.ledger.model_states import current_model_state, find_model_state
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import EVERYTHING, Listing
from recollect.model.scope import Scope

if TYPE_CHECKING:
    from recollect.config.settings import Settings
    from recollect.ledger.protocol import Ledger
    from recollect.models.embedding import Embedder, EmbeddingModel


_LOW_DISK_BYTES = 1 << 30
_MIN_DISK_BYTES = 64 << 20
_OVERDUE_S = 300.0
_LLM_TIMEOUT_S = 15.0


class CheckState(StrEnum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of doctor."""

    name: str
    state: CheckState
    message: str
    mend: str = ""


@dataclass(slots=True)
class Diagnosis:
    """The checks so far, told as they come, and the exit code they amount to."""

    on_result: Callable[[CheckResult], None]
    checks: list[CheckResult] = field(default_factory=list)
    exit_code: ExitCode = ExitCode.OK

    def add(self, name: str, message: str, *, state: CheckState = CheckState.OK, mend: str = "") -> None:
        """Put down how a check went."""
        self.checks.append(CheckResult(name, state, message, mend))
        self.on_result(self.checks[-1])

    def fail(self, name: str, message: str, *, exit_code: ExitCode, mend: str = "") -> None:
        """Put down what is broken; the first break gives the exit code."""
        self.exit_code = self.exit_code or exit_code
        self.add(name, message, state=CheckState.FAIL, mend=mend)

    def fail_with_error(self, name: str, error: Exception, *, mend: str = "") -> None:
        """Put down an error; its message says how to mend it unless told otherwise."""
        self.fail(name, str(error) or type(error).__name__, exit_code=exit_code_for(type(error)), mend=mend)


def check_versions(diagnosis: Diagnosis) -> None:
    """Which versions are at work."""
    import apsw
    import numpy

    diagnosis.add(
        "versions",
        f"recollect {__version__}, Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, "
        f"apsw {apsw.apsw_version()}, numpy {numpy.__version__}",
    )


def check_folder(diagnosis: Diagnosis, folder: Path) -> None:
    """Whether files can be made there, and how much space there is."""
    existing = next((each for each in (folder, *folder.parents) if each.exists()), Path("/"))
    try:
        if not existing.is_dir():
            raise NotADirectoryError(f"{existing} is not a folder")
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        mend = "give the folder write permission, or name another with --home"
        diagnosis.fail("home", f"{folder}: {error.strerror or error}", exit_code=ExitCode.UNAVAILABLE, mend=mend)
        return
    diagnosis.add("home", f"{folder} is writable" if existing == folder else f"{folder} can be made")
    free = shutil.disk_usage(existing).free
    message = f"{format_size(free)} free"
    if free < _MIN_DISK_BYTES:
        diagnosis.fail("disk", message, exit_code=ExitCode.UNAVAILABLE, mend="free some space before writing more")
    elif free < _LOW_DISK_BYTES:
        diagnosis.add("disk", message, state=CheckState.WARN, mend="free some space soon")
    else:
        diagnosis.add("disk", message)


async def check_embedder(diagnosis: Diagnosis, settings: Settings) -> Embedder | None:
    """Whether the embedder answers with what it promises."""
    from recollect.wiring import open_embedder

    embedder = None
    try:
        embedder = await open_embedder(settings)
        started = time.perf_counter()
        [vector] = await embedder.embed(["Does it answer?"], role="query")
    except RecollectError as error:
        diagnosis.fail_with_error("embedder", error, mend="see recollect config show for embedder, its URL and key")
        return embedder
    elapsed_ms = (time.perf_counter() - started) * 1000
    diagnosis.add("embedder", f"{embedder.model} answered in {elapsed_ms:.1f} ms with {len(vector)} numbers")
    return embedder


async def check_ledger(diagnosis: Diagnosis, ledger: Ledger, *, mend: bool) -> None:
    """Whether the ledger keeps its promises; its full text is made anew on request."""
    if mend:
        await ledger.rebuild_terms()
        diagnosis.add("full text", "made anew")
    try:
        broken = await ledger.check()
    except StoreCorrupt as error:
        diagnosis.fail_with_error("integrity", error)
        return
    for sentence in broken:
        diagnosis.fail("integrity", sentence, exit_code=ExitCode.DAMAGED)
    if not broken:
        counts = await ledger.stats()
        memories = pluralize(counts.get("memories", 0), "memory", "memories")
        turns, users = pluralize(counts.get("turns", 0), "turn"), pluralize(counts.get("users", 0), "user")
        message = f"{memories} and {turns} of {users}"
        diagnosis.add("integrity", f"no damage found in {message}")
    for sentence in await ledger.security_warnings():
        diagnosis.add("safety", sentence, state=CheckState.WARN)


async def check_pgvector(diagnosis: Diagnosis, ledger: Ledger, model: EmbeddingModel) -> None:
    """Whether PostgreSQL can search for users with many memories, and for how many it does."""
    from recollect.index.pgvector import open_pgvector

    state = await open_pgvector(ledger, model).hnsw_index.state()
    if state.trouble:
        diagnosis.add("pgvector", "search is exact, in memory", state=CheckState.WARN, mend=state.trouble)
    elif state.users and not state.is_indexed:
        diagnosis.add("pgvector", "its index is not whole; it is made anew when a large user is asked for")
    else:
        diagnosis.add("pgvector", f"{state.version}, with {pluralize(state.users, 'large user')}")


async def check_search(diagnosis: Diagnosis, ledger: Ledger, embedder: Embedder, user: str | None) -> None:
    """Whether a memory is found by its own words, and by its vector."""
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
        diagnosis.fail("full text", message, exit_code=ExitCode.DAMAGED, mend="recollect doctor --mend makes it anew")
    index = ExactIndex(ledger, embedder.model, budget_bytes=0)
    started = time.perf_counter()
    [vector] = await embedder.embed([text], role="query")
    await (await index.view(scope, EVERYTHING)).nearest(vector, limit=1)
    elapsed_ms = (time.perf_counter() - started) * 1000
    diagnosis.add("index", f"user {scope.user} loaded in {elapsed_ms:.1f} ms, {format_size(index.nbytes)} of memory")
    await index.close()


async def _any_memory(ledger: Ledger, user: str | None) -> MemoryRecord | None:
    for name in [user] if user else (await ledger.users())[:20]:
        for record in await ledger.find(Scope(name), Listing(statuses=(Status.ACTIVE,), limit=1)):
            return record
    return None


async def check_vectors(diagnosis: Diagnosis, ledger: Ledger, embedder: Embedder) -> None:
    """Whether the model that the settings name is searched, and every memory has a vector of it."""
    mend = "recollect reembed makes them; a server or a worker does it behind"
    models, states = await ledger.models(), await ledger.model_states()
    searched, named = current_model_state(states), find_model_state(states, embedder.model)
    if searched is not None and searched.model != embedder.model:
        if named is not None and named.retired_at is not None:
            mend = "name it in the settings, or recollect reembed --back goes back"
        message = f"memories are searched by {searched.model}, and the settings name {embedder.model}"
        diagnosis.add("vectors", message, state=CheckState.WARN, mend=mend)
        return
    if await ledger.unembedded(embedder.model, limit=1):
        message = f"some memories have none of {embedder.model}; they are found by their words only"
        diagnosis.add("vectors", message, state=CheckState.WARN, mend=mend)
        return
    replaced = [
        f"{count:,} of {model}, which was replaced" for model, count in models.items() if model != embedder.model
    ]
    message = f"{models.get(embedder.model, 0):,}, all of the current model"
    diagnosis.add("vectors", "; ".join((message, *replaced)))


def format_size(number: float) -> str:
    """A number of bytes as a person reads it."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


async def check_jobs(diagnosis: Diagnosis, ledger: Ledger) -> None:
    """Whether what is said is being learned from."""
    stats = await ledger.job_stats()
    message = f"{stats.waiting:,} waiting, {stats.running:,} running, {stats.dead:,} given up"
    if stats.dead:
        mend = "recollect jobs --state dead says why; recollect jobs --replay all has them done after all"
        diagnosis.add("jobs", message, state=CheckState.WARN, mend=mend)
    elif stats.oldest_due_age_s > _OVERDUE_S:
        late = f"{message}; one has been due for {stats.oldest_due_age_s:.0f} s"
        diagnosis.add("jobs", late, state=CheckState.WARN, mend="recollect worker does them")
    else:
        diagnosis.add("jobs", message)


async def check_learning(diagnosis: Diagnosis, settings: Settings) -> None:
    """Say how a server with these settings learns, and how to have it learn better."""
    from recollect.http.upstream.learning import WITHOUT_LLM, describe_access

    described = await describe_access(settings)
    # With a reason it was meant to use the upstream.
    lacks_access = described.startswith(WITHOUT_LLM) and described != WITHOUT_LLM
    mend = "set llm, or upstream_api_key for the endpoint that chats are sent to" if lacks_access else ""
    diagnosis.add("learning", described, mend=mend)


async def check_llm(diagnosis: Diagnosis, settings: Settings) -> None:
    """Whether the LLM that the settings name answers; nothing is told where they name none."""
    from recollect.wiring import open_chat

    chat = open_chat(settings)
    if chat is None:
        return
    started = time.perf_counter()
    try:
        await chat.complete([{"role": "user", "content": "Say yes."}], max_tokens=256, timeout_s=_LLM_TIMEOUT_S)
    except RecollectError as error:
        mend = "check llm, llm_url and llm_api_key; until then what is said waits to be learned"
        diagnosis.add("llm", str(error), state=CheckState.WARN, mend=mend)
    else:
        diagnosis.add("llm", f"{chat.model} answered in {time.perf_counter() - started:.1f} s")
    finally:
        await chat.close()
