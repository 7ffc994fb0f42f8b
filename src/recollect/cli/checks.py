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
from recollect.cli.exit_codes import ExitCode, exit_code_of
from recollect.cli.records import counted
from recollect.errors import RecollectError, StoreCorrupt
from recollect.ledger.model_states import current_of, state_of
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import EVERYTHING, Listing
from recollect.model.scope import Scope

if TYPE_CHECKING:
    from recollect.ledger.protocol import Ledger
    from recollect.models.embedding import Embedder, EmbeddingModel
    from recollect.settings import Settings

_LOW_BYTES = 1 << 30
_NONE_BYTES = 64 << 20
_LATE_S = 300.0
_LLM_WAIT_S = 15.0


class State(StrEnum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of doctor."""

    name: str
    state: State
    message: str
    mend: str = ""


@dataclass(slots=True)
class Examination:
    """The checks so far, told as they come, and the exit code they amount to."""

    tell: Callable[[Check], None]
    checks: list[Check] = field(default_factory=list)
    code: ExitCode = ExitCode.OK

    def note(self, name: str, message: str, *, state: State = State.OK, mend: str = "") -> None:
        """Put down how a check went."""
        self.checks.append(Check(name, state, message, mend))
        self.tell(self.checks[-1])

    def fail(self, name: str, message: str, *, code: ExitCode, mend: str = "") -> None:
        """Put down what is broken; the first break gives the exit code."""
        self.code = self.code or code
        self.note(name, message, state=State.FAIL, mend=mend)

    def fail_with(self, name: str, error: Exception, *, mend: str = "") -> None:
        """Put down an error; its message says how to mend it unless told otherwise."""
        self.fail(name, str(error) or type(error).__name__, code=exit_code_of(type(error)), mend=mend)


def check_versions(examination: Examination) -> None:
    """Which versions are at work."""
    import apsw
    import numpy

    examination.note(
        "versions",
        f"recollect {__version__}, Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, "
        f"apsw {apsw.apsw_version()}, numpy {numpy.__version__}",
    )


def check_folder(examination: Examination, folder: Path) -> None:
    """Whether files can be made there, and how much space there is."""
    there = next((each for each in (folder, *folder.parents) if each.exists()), Path("/"))
    try:
        if not there.is_dir():
            raise NotADirectoryError(f"{there} is not a folder")
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        mend = "give the folder write permission, or name another with --home"
        examination.fail("home", f"{folder}: {error.strerror or error}", code=ExitCode.UNAVAILABLE, mend=mend)
        return
    examination.note("home", f"{folder} is writable" if there == folder else f"{folder} can be made")
    free = shutil.disk_usage(there).free
    told = f"{size(free)} free"
    if free < _NONE_BYTES:
        examination.fail("disk", told, code=ExitCode.UNAVAILABLE, mend="free some space before writing more")
    elif free < _LOW_BYTES:
        examination.note("disk", told, state=State.WARN, mend="free some space soon")
    else:
        examination.note("disk", told)


async def check_embedder(examination: Examination, settings: Settings) -> Embedder | None:
    """Whether the embedder answers with what it promises."""
    from recollect.wiring import open_embedder

    embedder = None
    try:
        embedder = await open_embedder(settings)
        started = time.perf_counter()
        [vector] = await embedder.embed(["Does it answer?"], role="query")
    except RecollectError as error:
        examination.fail_with("embedder", error, mend="see recollect config show for embedder, its URL and key")
        return embedder
    taken = (time.perf_counter() - started) * 1000
    examination.note("embedder", f"{embedder.model} answered in {taken:.1f} ms with {len(vector)} numbers")
    return embedder


async def check_ledger(examination: Examination, ledger: Ledger, *, mend: bool) -> None:
    """Whether the ledger keeps its promises; its full text is made anew on request."""
    if mend:
        await ledger.rebuild_terms()
        examination.note("full text", "made anew")
    try:
        broken = await ledger.check()
    except StoreCorrupt as error:
        examination.fail_with("integrity", error)
        return
    for sentence in broken:
        examination.fail("integrity", sentence, code=ExitCode.DAMAGED)
    if not broken:
        counts = await ledger.stats()
        memories = counted(counts.get("memories", 0), "memory", "memories")
        told = (
            f"{memories} and {counted(counts.get('turns', 0), 'turn')} of {counted(counts.get('users', 0), 'user')}"
        )
        examination.note("integrity", f"no damage found in {told}")
    for sentence in await ledger.cautions():
        examination.note("safety", sentence, state=State.WARN)


async def check_pgvector(examination: Examination, ledger: Ledger, model: EmbeddingModel) -> None:
    """Whether PostgreSQL can search for users with many memories, and for how many it does."""
    from recollect.index.pgvector import open_pgvector

    state = await open_pgvector(ledger, model).near.state()
    if state.trouble:
        examination.note("pgvector", "search is exact, in memory", state=State.WARN, mend=state.trouble)
    elif state.users and not state.is_indexed:
        examination.note("pgvector", "its index is not whole; it is made anew when a large user is asked for")
    else:
        examination.note("pgvector", f"{state.version}, with {counted(state.users, 'large user')}")


async def check_search(examination: Examination, ledger: Ledger, embedder: Embedder, user: str | None) -> None:
    """Whether a memory is found by its own words, and by its vector."""
    from recollect.index.exact import ExactIndex

    record = await _some_memory(ledger, user)
    if record is None:
        examination.note("search", "nothing to find yet")
        return
    scope, text = record.scope, record.content[:200]
    said = await ledger.lexical(scope, text)
    if len(said.rows) or not any(character.isalnum() for character in text):
        examination.note("full text", f"finds a memory of user {scope.user} by its words")
    else:
        wrong = f"does not find memory {record.id} by its own words"
        examination.fail("full text", wrong, code=ExitCode.DAMAGED, mend="recollect doctor --mend makes it anew")
    index = ExactIndex(ledger, embedder.model, budget_bytes=0)
    started = time.perf_counter()
    [vector] = await embedder.embed([text], role="query")
    await (await index.view(scope, EVERYTHING)).nearest(vector, limit=1)
    taken = (time.perf_counter() - started) * 1000
    examination.note("index", f"user {scope.user} loaded in {taken:.1f} ms, {size(index.nbytes)} of memory")
    await index.close()


async def _some_memory(ledger: Ledger, user: str | None) -> MemoryRecord | None:
    for name in [user] if user else (await ledger.users())[:20]:
        for record in await ledger.find(Scope(name), Listing(statuses=(Status.ACTIVE,), limit=1)):
            return record
    return None


async def check_vectors(examination: Examination, ledger: Ledger, embedder: Embedder) -> None:
    """Whether the model that the settings name is searched, and every memory has a vector of it."""
    mend = "recollect reembed makes them; a server or a worker does it behind"
    models, states = await ledger.models(), await ledger.model_states()
    searched, named = current_of(states), state_of(states, embedder.model)
    if searched is not None and searched.model != embedder.model:
        if named is not None and named.retired_at is not None:
            mend = "name it in the settings, or recollect reembed --back goes back"
        told = f"memories are searched by {searched.model}, and the settings name {embedder.model}"
        examination.note("vectors", told, state=State.WARN, mend=mend)
        return
    if await ledger.unembedded(embedder.model, limit=1):
        told = f"some memories have none of {embedder.model}; they are found by their words only"
        examination.note("vectors", told, state=State.WARN, mend=mend)
        return
    others = [
        f"{count:,} of {model}, which was replaced" for model, count in models.items() if model != embedder.model
    ]
    told = f"{models.get(embedder.model, 0):,}, all of the current model"
    examination.note("vectors", "; ".join((told, *others)))


def size(number: float) -> str:
    """A number of bytes as a person reads it."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


async def check_jobs(examination: Examination, ledger: Ledger) -> None:
    """Whether what is said is being learned from."""
    stats = await ledger.job_stats()
    told = f"{stats.waiting:,} waiting, {stats.running:,} running, {stats.dead:,} given up"
    if stats.dead:
        mend = "recollect jobs --state dead says why; recollect jobs --replay all has them done after all"
        examination.note("jobs", told, state=State.WARN, mend=mend)
    elif stats.oldest_due_age_s > _LATE_S:
        late = f"{told}; one has been due for {stats.oldest_due_age_s:.0f} s"
        examination.note("jobs", late, state=State.WARN, mend="recollect worker does them")
    else:
        examination.note("jobs", told)


async def check_learning(examination: Examination, settings: Settings) -> None:
    """Say how a server with these settings learns, and how to have it learn better."""
    from recollect.http.upstream.learning import WITHOUT_LLM, describe_access

    described = await describe_access(settings)
    # With a reason it was meant to use the upstream.
    lacks_access = described.startswith(WITHOUT_LLM) and described != WITHOUT_LLM
    mend = "set llm, or upstream_api_key for the endpoint that chats are sent to" if lacks_access else ""
    examination.note("learning", described, mend=mend)


async def check_llm(examination: Examination, settings: Settings) -> None:
    """Whether the LLM that the settings name answers; nothing is told where they name none."""
    from recollect.wiring import open_chat

    chat = open_chat(settings)
    if chat is None:
        return
    started = time.perf_counter()
    try:
        await chat.complete([{"role": "user", "content": "Say yes."}], max_tokens=256, timeout_s=_LLM_WAIT_S)
    except RecollectError as error:
        mend = "check llm, llm_url and llm_api_key; until then what is said waits to be learned"
        examination.note("llm", str(error), state=State.WARN, mend=mend)
    else:
        examination.note("llm", f"{chat.model} answered in {time.perf_counter() - started:.1f} s")
    finally:
        await chat.close()
