"""How a memory is opened and closed: on first use, once, whoever asks first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from recollect.errors import InvalidInput, InvalidSettings, StoreUnavailable, Unavailable
from recollect.model.arguments import (
    MessagesInput,
    RecordFields,
    TimeInput,
    parse_author,
    parse_idempotency_key,
    parse_limit,
    parse_messages,
    parse_number,
    parse_scope,
    parse_score,
    parse_status,
    parse_time,
    parse_wait,
)
from recollect.model.change import Actor, HistoryEntry, Outcome
from recollect.model.erasure import Erasure, ErasureRequest, Receipt, Target, parse_erasure, user_digest
from recollect.model.job import Job, JobState
from recollect.model.key import ApiKey, NewKey
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import Filter, Listing, Not, Op, Order, both, parse_filter, where
from recollect.model.result import Page, RecallOutcome, RecallResult, RememberResult, SearchResult
from recollect.model.scope import Scope
from recollect.model.text import validate_text
from recollect.model.times import as_utc, now
from recollect.model.turn import Conversation, Turn
from recollect.model.usage import Part, SpentToday, Usage

if TYPE_CHECKING:
    from recollect.config.settings import Settings
    from recollect.ledger.backup_file import Backup
    from recollect.ledger.model_states import ModelState
    from recollect.maintenance.tasks import MaintenanceReport, MaintenanceTask
    from recollect.maintenance.worker import Worker
    from recollect.models.embedding import Embedder
    from recollect.service.handle import ServiceHandle
    from recollect.service.operations import Operations
    from recollect.service.service import Service
    from recollect.transfer.import_ import ImportCounts
    from recollect.transfer.importers.items import ImportReport


_HANDLE_POLL_S = 0.05


class _ServiceAccess:
    """Where a memory is kept, and the service behind it."""

    def __init__(
        self,
        database: str | None = None,
        *,
        home: str | PathLike[str] | None = None,
        embedder: str | Embedder | None = None,
        preset: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        embedder_name = embedder if isinstance(embedder, str) else None
        self._overrides = {"database": database, "home": home, "preset": preset, "embedder": embedder_name}
        self._embedder = None if isinstance(embedder, str) else embedder
        self._settings = settings
        if settings is not None and any(value is not None for value in self._overrides.values()):
            override = next(name for name, value in self._overrides.items() if value is not None)
            raise InvalidSettings(f"give either settings or {override}: settings hold a {override} of their own")
        self._handle: ServiceHandle | None = None
        self._open_lock: asyncio.Lock | None = None
        self._closed = False

    async def open(self) -> Self:
        """Open the ledger now rather than on first use, so that what is wrong with it shows here."""
        self._closed = False
        await self._open()
        return self

    async def close(self) -> None:
        """Finish what is under way and let go of the ledger."""
        self._closed = True
        async with self._lock():
            handle, self._handle = self._handle, None
            # A lock belongs to the loop it was waited for in, and the next opening may be in another.
            self._open_lock = None
        if handle is not None:
            await handle.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        if self._settings is None:
            from recollect.config.settings import load

            self._settings = load(self._overrides).settings
        return self._settings

    @property
    def _service(self) -> Service | None:
        """The service, if it is open."""
        return self._handle.service if self._handle else None

    def _lock(self) -> asyncio.Lock:
        self._open_lock = self._open_lock or asyncio.Lock()
        return self._open_lock

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("this memory is closed; open it again with open()")

    async def _open(self) -> Service:
        self._check_open()
        if self._handle is not None:
            return await self._handle.current()
        from recollect.service.handle import ServiceHandle

        async with self._lock():
            self._check_open()
            if self._handle is None:
                self._handle = ServiceHandle(await self._reopen(), self._reopen)
        return self._handle.service

    async def _reopen(self) -> Service:
        from recollect.wiring import open_service

        return await open_service(self.settings, embedder=self._embedder)

    async def _watch_model(self) -> None:
        """Have the service exchanged by itself when the ledger goes over to another model, with no call coming in."""
        await self._open()
        if self._handle is not None:
            self._handle.watch()

    async def _current_service(self) -> Service:
        """The service, exchanged if it is of a model that the ledger no longer searches."""
        service = await self._open()
        change = service.operations.embedding_migration
        while self._handle is not None and change is not None and await change.has_moved():
            await self._handle.refresh()
            if self._handle.service is not service:
                return self._handle.service
            await asyncio.sleep(_HANDLE_POLL_S)
        return service


class _OperationsMixin(_ServiceAccess):
    """What is done with a memory as a whole, and the work behind the answers."""

    async def _operations(self) -> Operations:
        return (await self._open()).operations

    async def end_session(
        self, *, user_id: str, session_id: str, project_id: str | None = None, wait: bool | float = False
    ) -> Job:
        """End a session: what is left of it is learned, its episode is kept, what matters goes to the long term."""
        operations = await self._operations()
        scope = parse_scope(user_id, project_id, session_id)
        if self.settings.worker:
            operations.start()
        job = await operations.end_session(scope)
        within_s = parse_wait(wait)
        return await operations.wait_for_job_chain(job, within_s=within_s) if within_s else job

    async def end_run(
        self,
        goal: str,
        *,
        user_id: str,
        session_id: str,
        project_id: str | None = None,
        steps: Sequence[Mapping[str, str]] = (),
        answer: str = "",
        success: bool | None = None,
        lessons: Sequence[str] = (),
        run_id: str | None = None,
    ) -> tuple[Outcome, ...]:
        """Keep what an agent's run came to: its goal, steps, outcome and lessons, as an episode if it was a task.

        A step is {"kind": "thought" | "action" | "observation", "content": ...}. The same `run_id` twice is once.
        """
        from recollect.sessions.agent_runs import parse_run

        scope = parse_scope(user_id, project_id, session_id)
        run = parse_run(run_id, goal, steps=steps, answer=answer, success=success, lessons=lessons)
        return await (await self._operations()).end_run(scope, run)

    async def sessions(self, *, user_id: str, limit: int = 100) -> list[Conversation]:
        """A user's sessions, the latest first."""
        return await (await self._operations()).sessions(Scope(user_id).user, limit=parse_limit(limit))

    async def job(self, job_id: str, *, user_id: str) -> Job:
        """A job and how it stands."""
        return await (await self._operations()).job(Scope(user_id).user, job_id)

    async def jobs(
        self, *, user_id: str | None = None, states: Sequence[JobState | str] = (), limit: int = 100
    ) -> list[Job]:
        """The work behind the answers, newest first: what waits, runs, is done or has failed for good."""
        job_states = [parse_job_state(state) for state in states]
        return await (await self._operations()).jobs(user_id, states=job_states, limit=parse_limit(limit))

    async def replay_jobs(self, job_ids: Sequence[str], *, user_id: str) -> list[Job]:
        """Have dead and cancelled jobs done after all."""
        operations = await self._operations()
        if self.settings.worker:
            operations.start()
        return await operations.replay(Scope(user_id).user, job_ids)

    async def cancel_jobs(self, job_ids: Sequence[str], *, user_id: str) -> list[Job]:
        """Keep waiting and running jobs from having any effect."""
        return await (await self._operations()).cancel(Scope(user_id).user, job_ids)

    async def work(self) -> int:
        """Do the jobs that are due and all that comes of them, of all users; gives how many that were."""
        return await (await self._operations()).run_pending()

    async def start_worker(self) -> Worker:
        """Begin to do jobs here, as they come, until the memory is closed."""
        await self._watch_model()
        operations = await self._operations()
        operations.start()
        return operations.worker

    async def erase(
        self,
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
        turn_id: str | None = None,
        memory_id: str | None = None,
        everything: bool = False,
        by: str = "python",
        why: str = "",
    ) -> Receipt:
        """Remove for good: a session, a project, one turn or memory, or with `everything` all of the user.

        What was derived from it goes too. It cannot be undone; the receipt says what went from each store. The turns
        that a memory was learned from are forgotten with it, and told of as `hidden`: erase them, too, by `turn_id`.
        """
        ids = {"project_id": project_id, "session_id": session_id, "turn_id": turn_id, "memory_id": memory_id}
        if empty := [name for name, id in ids.items() if id is not None and not id]:
            raise InvalidInput(f"{empty[0]} is empty; leave it out, or say what to erase")
        scope = parse_scope(user_id, project_id, session_id)
        request = parse_erasure_request(scope, turn_id, memory_id)
        if (request.target is Target.USER) != everything:
            raise InvalidInput("to erase all of a user say everything=True, and name nothing else")
        return await (await self._operations()).erase(scope, request, by=parse_author(by, why))

    async def erasures(self, *, since: TimeInput | None = None, user_id: str | None = None) -> list[Erasure]:
        """What was erased, of anyone or of one user, oldest first: ids and digests, none of what it said.

        Kept outside the database, it is replayed on a copy of it that is older: `each.to_dict()` is a line of JSON.
        """
        recorded = await (await self._operations()).erasures(parse_time(since, name="since"))
        return [each for each in recorded if user_id is None or each.user == user_digest(Scope(user_id).user)]

    async def replay_erasures(
        self, erasures: Iterable[Erasure | Mapping[str, Any]], *, by: str = "python", why: str = ""
    ) -> list[Receipt]:
        """Erase again, in a database restored from an older copy, what was erased since; a receipt for each.

        What this database knows of, or has nothing of, is passed over: doing it twice changes nothing. Do it before
        anything is written: a session that was erased goes whole.
        """
        parsed = [each if isinstance(each, Erasure) else parse_erasure(each) for each in erasures]
        return await (await self._operations()).replay_erasures(parsed, by=parse_author(by, why))

    async def propose(
        self,
        content: str,
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
        by: str = "python",
        why: str = "",
        **fields: Unpack[RecordFields],
    ) -> Outcome:
        """Keep a memory that is not used before a person has approved it; `why` tells them what is to be decided."""
        scope = parse_scope(user_id, project_id, session_id)
        return await (await self._operations()).propose(scope, content, fields, by=parse_author(by, why))

    async def reviews(
        self, *, user_id: str, project_id: str | None = None, session_id: str | None = None, limit: int = 100
    ) -> Page:
        """What was learned but is not used before a person has looked at it, oldest first."""
        scope = parse_scope(user_id, project_id, session_id)
        return await (await self._operations()).reviews(scope, limit=parse_limit(limit))

    async def approve(
        self,
        memory_id: str,
        *,
        user_id: str,
        by: str,
        actor: Actor | str = Actor.PERSON,
        expected_version: int | None = None,
        why: str = "",
    ) -> Outcome:
        """Let a memory that waits for review be recalled; `by` is the person who has looked at it.

        An agent cannot approve, nor can whoever proposed it: where an agent may be calling, say so by `actor`.
        With `expected_version` nothing is approved that was changed since it was looked at.
        """
        who = parse_author(by, why, actor=actor)
        version = parse_number(expected_version, name="expected_version")
        reviewed = await (await self._operations()).approve(
            Scope(user_id), memory_id, by=who, expected_version=version
        )
        return reviewed.outcome

    async def reject(
        self,
        memory_id: str,
        *,
        user_id: str,
        by: str = "python",
        expected_version: int | None = None,
        why: str = "",
    ) -> Outcome:
        """Forget a memory that waits for review; it was never used."""
        version = parse_number(expected_version, name="expected_version")
        operations = await self._operations()
        reviewed = await operations.reject(
            Scope(user_id), memory_id, by=parse_author(by, why), expected_version=version
        )
        return reviewed.outcome

    async def edit_review(
        self,
        memory_id: str,
        content: str | None = None,
        *,
        user_id: str,
        by: str = "python",
        expected_version: int | None = None,
        **fields: Unpack[RecordFields],
    ) -> Outcome:
        """Change what a memory that waits for review says; it goes on waiting."""
        changes: dict[str, Any] = dict(fields) if content is None else {**fields, "content": content}
        version = parse_number(expected_version, name="expected_version")
        operations = await self._operations()
        reviewed = await operations.edit_review(
            Scope(user_id), memory_id, changes, by=parse_author(by), expected_version=version
        )
        return reviewed.outcome

    async def upkeep(
        self,
        chores: Sequence[MaintenanceTask | str] = ("expire", "quota", "prune", "consolidate"),
        *,
        user_id: str,
        project_id: str | None = None,
        dry_run: bool = False,
        by: str = "python",
    ) -> list[MaintenanceReport]:
        """Put a user's memories in order now: expire, quota, prune, consolidate, reflect; each can be undone whole.

        A dry run only says what it would do.
        """
        from recollect.maintenance.tasks import parse_tasks

        scope = parse_scope(user_id, project_id, None)
        return await (await self._operations()).run_maintenance(
            scope, parse_tasks(chores), by=parse_author(by), dry_run=dry_run
        )

    async def add_key(
        self,
        *,
        user_id: str | None = None,
        project_id: str | None = None,
        everyone: bool = False,
        admin: bool = False,
        read: bool = True,
        write: bool = True,
        name: str = "",
        expires_at: TimeInput | None = None,
    ) -> NewKey:
        """Make a key for the server: for one user, for everyone, or for an admin. Its text is told this once."""
        until = None if expires_at is None else as_utc(expires_at, name="expires_at")
        return await (await self._open()).api_keys.add(
            user=user_id,
            project=project_id,
            everyone=everyone,
            admin=admin,
            reads=read,
            writes=write,
            name=name,
            expires_at=until,
        )

    async def keys(self, *, user_id: str | None = None) -> list[ApiKey]:
        """All keys of the server, or a user's, the oldest first."""
        return await (await self._open()).api_keys.list_keys(user_id)

    async def revoke_key(self, key_id: str) -> ApiKey:
        """Have a key open nothing any more."""
        return await (await self._open()).api_keys.revoke(key_id)

    async def usage(
        self,
        *,
        user_id: str | None = None,
        since: TimeInput | None = None,
        parts: Sequence[Part] = ("day", "model", "step"),
    ) -> list[Usage]:
        """What the LLM was asked, and what that came to, by day, model and step."""
        return await (await self._operations()).usage(user_id, since=parse_time(since, name="since"), by=parts)

    async def spent_today(self, *, user_id: str | None = None) -> SpentToday:
        """What the LLM cost since midnight, UTC, for a user or for all: what the day's limits are about."""
        return await (await self._operations()).spent_today(user_id)


def parse_job_state(state: str) -> JobState:
    """The state of this name, or an InvalidInput that says which there are."""
    if state not in tuple(JobState):
        raise InvalidInput(f"there is no state {state!r} of a job; there are {', '.join(JobState)}")
    return JobState(state)


def parse_erasure_request(scope: Scope, turn_id: str | None, memory_id: str | None) -> ErasureRequest:
    """What the ids ask to erase: the narrowest that is named."""
    if turn_id is not None and memory_id is not None:
        raise InvalidInput("give either a turn_id or a memory_id to erase, not both")
    if turn_id is not None:
        return ErasureRequest(Target.TURN, turn_id)
    if memory_id is not None:
        return ErasureRequest(Target.MEMORY, memory_id)
    return ErasureRequest(Target.SESSION if scope.session else Target.PROJECT if scope.project else Target.USER)


class _TransferMixin(_ServiceAccess):
    """Backups, and what is brought in from other products."""

    async def backup(
        self,
        path: str | PathLike[str],
        *,
        force: bool = False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Backup:
        """Write all there is at this moment to a file, while it is used; `force` replaces one that is there.

        Whatever was acknowledged before this was called is in it. Everyone's memories are, with their history, and
        what stands for the keys of the server: keep it as safe as the ledger.
        """
        service = await self._open()
        return await service.transfer.backup(Path(path), force=force, progress=progress)

    async def import_from(
        self,
        source: str | PathLike[str],
        *,
        user_id: str | None = None,
        kind: str = "auto",
        of: Iterable[str] = (),
        everyone: bool = False,
        project_id: str | None = None,
        learn: bool = False,
        dry_run: bool = False,
        token: str | None = None,
        by: str = "import",
        progress: Callable[[int], None] = lambda done: None,
    ) -> ImportReport:
        """Bring in what another product keeps: a file, a folder, a zip archive, an API or a database.

        All of it becomes `user_id`'s; without one it stays with the users whom the source names, of those in `of`, or
        of `everyone`. `dry_run` writes nothing and tells what would be. Doing it again changes nothing.
        """
        from recollect.transfer.importers.items import ImportOptions
        from recollect.transfer.importers.source import ImportSource

        service, author = await self._open(), parse_author(by)
        options = ImportOptions(
            user=user_id, of=frozenset(of), everyone=everyone, project=project_id, learn=learn, dry_run=dry_run
        )
        import_source = ImportSource(str(source), {"of": sorted(options.of), "token": token})
        return await service.transfer.import_from(import_source, options, kind=kind, by=author, progress=progress)


_IMPORT_BATCH = 500


class AsyncMemory(_TransferMixin, _OperationsMixin, _ServiceAccess):
    """Long-term memory for the users of an application.

    `AsyncMemory()` keeps it in the default home, `AsyncMemory(home=path)` in a folder of yours,
    `AsyncMemory("postgresql://...")` in PostgreSQL. It opens on first use; close it, or use `async with`.
    """

    async def add(
        self,
        content: str | None = None,
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
        correction: bool = False,
        embedding: Sequence[float] | None = None,
        idempotency_key: str | None = None,
        by: str = "python",
        why: str = "",
        **fields: Unpack[RecordFields],
    ) -> Outcome:
        """Keep a memory, word for word; one that says the same as another is not kept twice.

        With `key` and `value` it is a fact that has one value at a time: a new one supersedes the old if it is
        at least as confident, or a `correction`.
        """
        from recollect.remember import MemoryInput

        service = await self._open()
        new = MemoryInput(
            content=content,
            fields=fields,
            vector=await service.operations.check_embedding(embedding),
            correction=correction,
        )
        scope = parse_scope(user_id, project_id, session_id)
        idempotency = parse_idempotency_key(idempotency_key, "add", scope, content, fields)
        return await service.add(scope, new, by=parse_author(by, why), idempotency=idempotency)

    async def remember(
        self,
        messages: MessagesInput,
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
        by: str = "python",
        wait: bool | float = False,
        mode: str | None = None,
    ) -> RememberResult:
        """Keep what was said: OpenAI-style messages, in order; they are on disk and can be searched at once.

        What they say is learned behind the answer. `wait` waits for it, at most a minute or so many seconds; the
        result's `job` tells what came of it. `mode` says what the LLM listens for: chat, document, task or profile.
        """
        service = await self._open()
        scope = parse_scope(user_id, project_id, session_id)
        if self.settings.worker:
            service.operations.start()
        return await service.remember(scope, messages, by=parse_author(by), wait_s=parse_wait(wait), mode=mode)

    async def update(
        self,
        memory_id: str,
        content: str | None = None,
        *,
        user_id: str,
        expected_version: int | None = None,
        by: str = "python",
        why: str = "",
        **fields: Unpack[RecordFields],
    ) -> Outcome:
        """Change a memory; with `expected_version` only if nobody else has changed it since."""
        changes: dict[str, Any] = dict(fields)
        if content is not None:
            changes["content"] = content
        if not changes:
            raise InvalidInput("nothing to update; give the content or a field")
        service = await self._open()
        version = parse_number(expected_version, name="expected_version")
        return await service.update(
            Scope(user_id), memory_id, changes, by=parse_author(by, why), expected_version=version
        )

    async def delete(
        self, memory_id: str, *, user_id: str, sources: bool = True, by: str = "python", why: str = ""
    ) -> Outcome:
        """Forget a memory; it is not found any more, and `undo` brings it back.

        With it goes what repeats it: the turns a memory was learned from, the memories that rest on a turn alone, and
        the assistant's repetitions, unless `sources` is False.
        """
        return await (await self._open()).forget(Scope(user_id), memory_id, by=parse_author(by, why), sources=sources)

    async def restore(self, memory_id: str, *, user_id: str, by: str = "python", why: str = "") -> Outcome:
        """Make a forgotten or superseded memory active again."""
        return await (await self._open()).restore(Scope(user_id), memory_id, by=parse_author(by, why))

    async def delete_all(
        self,
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
        filters: Filter | Mapping[str, Any] | None = None,
        by: str = "python",
        why: str = "",
    ) -> int:
        """Forget everything in the scope, turns too; gives how many memories that were."""
        service = await self._open()
        scope = parse_scope(user_id, project_id, session_id)
        return await service.forget_all(scope, Listing(filter=parse_filter(filters)), by=parse_author(by, why))

    async def undo(
        self,
        change_id: int | None = None,
        *,
        user_id: str,
        anyones: bool = False,
        by: str = "python",
        why: str = "",
    ) -> tuple[Outcome, ...]:
        """Take back a change by its id in `history`; without one, the last thing that someone did or said.

        What was said goes with what was learned from it. With `anyones` it is the last change whoever made it: what
        was learned or put in order behind counts too.
        """
        number = parse_number(change_id, name="change_id")
        return await (await self._open()).undo(Scope(user_id), number, by=parse_author(by, why), anyones=anyones)

    async def search(
        self,
        query: str,
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
        limit: int | None = None,
        filters: Filter | Mapping[str, Any] | None = None,
        min_score: float | None = None,
        embedding: Sequence[float] | None = None,
        at: TimeInput | None = None,
        as_of: TimeInput | None = None,
        explain: bool = False,
        trace: bool = False,
    ) -> SearchResult:
        """The memories and turns that fit the query, best first, with scores from 0 to 1.

        "Last March" in the query is meant from `at`, by default now. `as_of` answers from what held at that moment.
        `explain` gives each hit its reason, `trace` every candidate with all its scores and what became of it.
        """
        from recollect.recall import SearchRequest
        from recollect.text.time_expressions import parse_time_filter

        service = await self._open()
        query = validate_text(query, name="query")
        times = parse_time_filter(query, at=parse_time(at, name="at") or now(), mode=self.settings.time_words)
        request = SearchRequest(
            query=query,
            limit=parse_limit(self.settings.search_limit if limit is None else limit),
            filter=both(parse_filter(filters), times.filter),
            min_score=self._min_score(min_score),
            vector=await service.operations.check_embedding(embedding),
            as_of=parse_time(as_of, name="as_of"),
            periods=times.periods,
            explain=explain,
            trace=trace,
        )
        return await service.search(parse_scope(user_id, project_id, session_id), request)

    def _min_score(self, min_score: float | None) -> float:
        return parse_score(self.settings.search_min_score if min_score is None else min_score, name="min_score")

    async def recall(
        self,
        messages: MessagesInput,
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
        limit: int | None = None,
        filters: Filter | Mapping[str, Any] | None = None,
        min_score: float | None = None,
        at: TimeInput | None = None,
        as_of: TimeInput | None = None,
        is_fact: bool | None = None,
        requires_tool: bool | None = None,
        trace: bool = False,
    ) -> RecallResult:
        """The memories that help to answer the last message: hits, a block for the prompt, and the messages with it.

        It decides whether to search at all, completes a vague question from the messages before it, and where it
        searches gives the user's keyed facts too. If memory is away the outcome says so; the messages stay as given.
        """
        from recollect.recall import RecallRequest

        scope = parse_scope(user_id, project_id, session_id)
        request = RecallRequest(
            messages=parse_messages(messages),
            at=parse_time(at, name="at") or now(),
            limit=parse_limit(self.settings.search_limit if limit is None else limit, min_limit=0),
            min_score=self._min_score(min_score),
            filter=parse_filter(filters),
            as_of=parse_time(as_of, name="as_of"),
            is_fact=is_fact,
            requires_tool=requires_tool,
            trace=trace,
        )
        self._check_open()
        try:
            service = await self._open()
        except Unavailable as error:
            return RecallResult(
                outcome=RecallOutcome.UNAVAILABLE, reason=str(error), messages=tuple(request.messages)
            )
        return await service.recall(scope, request)

    async def get(self, memory_id: str, *, user_id: str, as_of: TimeInput | None = None) -> MemoryRecord:
        """One memory, in whatever state it is, or was at the moment `as_of`."""
        return await (await self._open()).get(Scope(user_id), memory_id, as_of=parse_time(as_of, name="as_of"))

    async def get_all(
        self,
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
        filters: Filter | Mapping[str, Any] | None = None,
        statuses: Sequence[Status | str] = (Status.ACTIVE,),
        turns: bool = False,
        order: Order = "newest",
        limit: int = 100,
        cursor: str | None = None,
        as_of: TimeInput | None = None,
    ) -> Page:
        """The memories in the scope, newest first, a page at a time; `turns` lists what was said as well.

        `as_of` lists what held at that moment, as it was then.
        """
        listing = Listing(
            filter=parse_filter(filters)
            if turns
            else both(parse_filter(filters), Not(where("category", Op.EQ, "turn"))),
            statuses=tuple(parse_status(status) for status in statuses),
            order=order,
            limit=parse_limit(limit),
            cursor=cursor,
        )
        scope, moment = parse_scope(user_id, project_id, session_id), parse_time(as_of, name="as_of")
        return await (await self._open()).find(scope, listing, as_of=moment)

    async def history(
        self, memory_id: str | None = None, *, user_id: str, limit: int = 100, before: int | None = None
    ) -> list[HistoryEntry]:
        """What happened to a memory, or to all of the user's, newest first: who, when, why, what was before."""
        service = await self._open()
        before = parse_number(before, name="before")
        return await service.history(Scope(user_id), memory_id=memory_id, limit=parse_limit(limit), before=before)

    async def turns(
        self, *, user_id: str, session_id: str, project_id: str | None = None, after: int = 0, limit: int = 100
    ) -> list[Turn]:
        """What was said in a session, in order, after a position."""
        service = await self._open()
        after = parse_number(after, name="after") or 0
        return await service.turns(
            parse_scope(user_id, project_id, session_id), after=after, limit=parse_limit(limit)
        )

    async def users(self) -> list[str]:
        """Everyone who has memories."""
        return await (await self._open()).users()

    async def export(
        self,
        *,
        user_id: str | None = None,
        project_id: str | None = None,
        sessions: bool = True,
        embeddings: bool = False,
    ) -> AsyncIterator[dict[str, Any]]:
        """Every memory and turn as plain values, oldest first; without a user, of all users.

        How each session stands comes last, its summary and invocations too, unless `sessions` is False. With
        `embeddings` the vectors of the current model come along.
        """
        service = await self._open()
        with service.use_count.track():
            for user in [user_id] if user_id is not None else await self.users():
                scope = parse_scope(user, project_id, None)
                async for line in service.transfer.export(scope, sessions=sessions, embeddings=embeddings):
                    yield line

    async def import_(
        self,
        lines: Iterable[Mapping[str, Any]],
        *,
        user_id: str | None = None,
        by: str = "import",
        progress: Callable[[int], None] = lambda done: None,
    ) -> ImportCounts:
        """Add what `export` gave; `user_id` makes all of it that user's. Doing it again changes nothing."""
        from recollect.transfer.import_ import ImportCounts

        author, total, done, remaining = parse_author(by), ImportCounts(), 0, iter(lines)
        await self._open()
        # On another thread, as the lines and the progress may be made by calling this very memory.
        while batch := await asyncio.to_thread(list, islice(remaining, _IMPORT_BATCH)):
            total += await (await self._open()).transfer.import_lines(batch, user=user_id, done=done, by=author)
            done += len(batch)
            await asyncio.to_thread(progress, done)
        return total

    async def reembed(
        self, progress: Callable[[int], None] = lambda done: None, *, back: bool = False, drop: bool = False
    ) -> int:
        """Make vectors of the model that the settings name for everything that lacks one, then search by it.

        Gives how many were made. Until then memories are searched by the model before. To go `back` to a model that
        another took the place of has to be said; `drop` removes the vectors of other models now, not a day later.
        """
        from recollect.aio.progress import report_in_thread

        service = await self._open()
        async with report_in_thread(progress) as report_progress:
            done = await service.reembed(report_progress, back=back, drop=drop)
        await self._current_service()
        return done

    async def embedding_models(self) -> list[ModelState]:
        """Which embedding model is searched, which were before, and how far another one is."""
        return await (await self._open()).model_states()

    async def stats(self, user_id: str | None = None) -> Mapping[str, int]:
        """How much there is, of one user or of all."""
        return await (await self._open()).stats(user_id)
