"""The namespaces of `AsyncMemory`, such as `memory.jobs`: operations beyond storing and searching memories."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from recollect.errors import InvalidInput, InvalidSettings, StoreUnavailable
from recollect.model.arguments import (
    RecordFields,
    TimeInput,
    parse_author,
    parse_limit,
    parse_number,
    parse_scope,
    parse_time,
    parse_wait,
)
from recollect.model.change import Actor, Author, Outcome
from recollect.model.erasure import Erasure, ErasureRequest, Receipt, Target, parse_erasure, user_digest
from recollect.model.job import Job, JobState
from recollect.model.key import ApiKey, NewKey, new_key
from recollect.model.result import Page
from recollect.model.scope import Scope
from recollect.model.times import as_utc
from recollect.model.turn import Conversation, Turn
from recollect.model.usage import Part, SpentToday, Usage

if TYPE_CHECKING:
    from recollect.config.settings import Settings
    from recollect.models.embedding import Embedder
    from recollect.service.handle import ServiceHandle
    from recollect.service.jobs import MaintenanceReport, MaintenanceTask, Worker
    from recollect.service.service import ModelState, Service
    from recollect.service.transfer import Backup, ImportReport


_MODEL_POLL_S = 0.05
# The author in history of changes made without `acting_as`.
DEFAULT_AUTHOR = Author("python")


def import_author(author: Author) -> Author:
    """Return the author of imported records: "import", unless `acting_as` names another."""
    return Author("import") if author is DEFAULT_AUTHOR else author


class Connection:
    """The settings of a memory and its service, which is opened once, on first use."""

    def __init__(self, overrides: Mapping[str, Any], *, embedder: Embedder | None, settings: Settings | None) -> None:
        conflict = next((name for name, value in overrides.items() if value is not None), None)
        if settings is not None and conflict is not None:
            raise InvalidSettings(f"give either settings or {conflict}: settings include a {conflict}")
        self._overrides = overrides
        self._embedder = embedder
        self._settings = settings
        self._handle: ServiceHandle | None = None
        self._lock: asyncio.Lock | None = None
        self.is_closed = False

    @property
    def settings(self) -> Settings:
        if self._settings is None:
            from recollect.config.settings import load

            self._settings = load(self._overrides).settings
        return self._settings

    def check_open(self) -> None:
        """Raise `StoreUnavailable` if the memory was closed."""
        if self.is_closed:
            raise StoreUnavailable("this memory is closed; open it again with open()")

    async def service(self) -> Service:
        """Return the service of the embedding model that the ledger uses; open it if it is not open yet."""
        self.check_open()
        if self._handle is not None:
            return await self._handle.current()
        from recollect.service.handle import ServiceHandle

        async with self._opening():
            self.check_open()
            if self._handle is None:
                handle = ServiceHandle(self._open_service)
                await handle.open()
                self._handle = handle
        return self._handle.get()

    async def watch_model(self) -> None:
        """Replace the service in the background when the ledger changes to another embedding model."""
        await self.service()
        if self._handle is not None:
            self._handle.watch()

    async def wait_for_model(self) -> None:
        """Wait until the service uses the embedding model of the ledger."""
        service = await self.service()
        migration = service.embedding_migration
        while self._handle is not None and migration is not None and await migration.has_moved():
            await self._handle.refresh()
            if self._handle.get() is not service:
                return
            await asyncio.sleep(_MODEL_POLL_S)

    async def close(self) -> None:
        """Close the service, if it is open."""
        self.is_closed = True
        async with self._opening():
            handle, self._handle = self._handle, None
            # A lock is bound to the loop that first waited for it, and the next opening may be in another.
            self._lock = None
        if handle is not None:
            await handle.close()

    def _opening(self) -> asyncio.Lock:
        self._lock = self._lock or asyncio.Lock()
        return self._lock

    async def _open_service(self) -> Service:
        from recollect.wiring import open_service

        return await open_service(self.settings, embedder=self._embedder)


class AsyncNamespace:
    """A group of operations of one memory."""

    def __init__(self, connection: Connection, author: Author = DEFAULT_AUTHOR) -> None:
        self._connection = connection
        self._author = author

    async def _service(self) -> Service:
        return await self._connection.service()


class AsyncJobs(AsyncNamespace):
    """Background work: list, replay, cancel, run."""

    async def get(self, job_id: str, *, user_id: str) -> Job:
        """Return a job with its state."""
        return await (await self._service()).jobs.get(Scope(user_id).user, job_id)

    async def list(
        self, *, user_id: str | None = None, states: Sequence[JobState | str] = (), limit: int = 100
    ) -> builtins.list[Job]:
        """Return the jobs of a user or of all users, newest first."""
        job_states = [_parse_job_state(state) for state in states]
        return await (await self._service()).jobs.list(user_id, states=job_states, limit=parse_limit(limit))

    async def replay(self, job_ids: Sequence[str], *, user_id: str) -> builtins.list[Job]:
        """Queue dead and cancelled jobs."""
        jobs = (await self._service()).jobs
        if self._connection.settings.worker:
            jobs.start()
        return await jobs.replay(Scope(user_id).user, job_ids)

    async def cancel(self, job_ids: Sequence[str], *, user_id: str) -> builtins.list[Job]:
        """Cancel waiting and running jobs; they have no effect."""
        return await (await self._service()).jobs.cancel(Scope(user_id).user, job_ids)

    async def run_pending(self) -> int:
        """Run the jobs of all users that are due, and those they enqueue; return their number."""
        return await (await self._service()).jobs.run_pending()

    async def start_worker(self) -> Worker:
        """Run jobs in this process as they become due, until the memory is closed."""
        await self._connection.watch_model()
        jobs = (await self._service()).jobs
        jobs.start()
        return jobs.worker


class AsyncSessions(AsyncNamespace):
    """Conversations: list, read their turns, end."""

    async def list(self, *, user_id: str, limit: int = 100) -> builtins.list[Conversation]:
        """Return the sessions of a user, latest first."""
        return await (await self._service()).sessions.list(Scope(user_id).user, limit=parse_limit(limit))

    async def turns(
        self, *, user_id: str, session_id: str, project_id: str | None = None, after: int = 0, limit: int = 100
    ) -> builtins.list[Turn]:
        """Return the turns of a session in order, after a position."""
        after = parse_number(after, name="after") or 0
        scope = parse_scope(user_id, project_id, session_id)
        return await (await self._service()).turns(scope, after=after, limit=parse_limit(limit))

    async def end(
        self, *, user_id: str, session_id: str, project_id: str | None = None, wait: bool | float = False
    ) -> Job:
        """End a session: extract from its last turns, write its episode, and promote important memories."""
        service = await self._service()
        if self._connection.settings.worker:
            service.jobs.start()
        job = await service.sessions.end(parse_scope(user_id, project_id, session_id))
        within_s = parse_wait(wait)
        return await service.jobs.wait_for_chain(job, within_s=within_s) if within_s else job

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
        """Store the run of an agent as an episode, with its goal, steps, outcome and lessons, if it was a task.

        A step is {"kind": "thought" | "action" | "observation", "content": ...}. A `run_id` is stored once.
        """
        from recollect.sessions.agent_runs import parse_run

        scope = parse_scope(user_id, project_id, session_id)
        run = parse_run(run_id, goal, steps=steps, answer=answer, success=success, lessons=lessons)
        return await (await self._service()).sessions.end_run(scope, run)


class AsyncReviews(AsyncNamespace):
    """Memories that a person has to approve before they are used."""

    async def list(
        self, *, user_id: str, project_id: str | None = None, session_id: str | None = None, limit: int = 100
    ) -> Page:
        """Return the memories that wait for review, oldest first."""
        scope = parse_scope(user_id, project_id, session_id)
        return await (await self._service()).reviews.list(scope, limit=parse_limit(limit))

    async def propose(
        self,
        content: str,
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
        **fields: Unpack[RecordFields],
    ) -> Outcome:
        """Store a memory that is not used until a person approves it; `acting_as(why=...)` sets the reason."""
        scope = parse_scope(user_id, project_id, session_id)
        return await (await self._service()).reviews.propose(scope, content, fields, by=self._author)

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
        """Approve a memory for recall; `by` names the person.

        Agents cannot approve, nor can the author of the proposal: pass `actor` if the caller may be an agent.
        `expected_version` raises `Conflict` if the memory changed since it was reviewed.
        """
        author = parse_author(by, why, actor=actor)
        version = parse_number(expected_version, name="expected_version")
        reviews = (await self._service()).reviews
        reviewed = await reviews.approve(Scope(user_id), memory_id, by=author, expected_version=version)
        return reviewed.outcome

    async def reject(self, memory_id: str, *, user_id: str, expected_version: int | None = None) -> Outcome:
        """Forget a memory that waits for review."""
        version = parse_number(expected_version, name="expected_version")
        reviews = (await self._service()).reviews
        author = self._author
        return (await reviews.reject(Scope(user_id), memory_id, by=author, expected_version=version)).outcome

    async def edit(
        self,
        memory_id: str,
        content: str | None = None,
        *,
        user_id: str,
        expected_version: int | None = None,
        **fields: Unpack[RecordFields],
    ) -> Outcome:
        """Change a memory that waits for review; it stays in review."""
        changes: dict[str, Any] = dict(fields) if content is None else {**fields, "content": content}
        version = parse_number(expected_version, name="expected_version")
        reviews = (await self._service()).reviews
        reviewed = await reviews.edit(Scope(user_id), memory_id, changes, by=self._author, expected_version=version)
        return reviewed.outcome


class AsyncErasure(AsyncNamespace):
    """Permanent removal, with receipts."""

    async def erase(
        self,
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
        turn_id: str | None = None,
        memory_id: str | None = None,
        everything: bool = False,
    ) -> Receipt:
        """Remove permanently a session, a project, one turn or memory, or with `everything` all data of the user.

        Everything derived from it is removed too. The receipt lists the removals of each store. Turns that an erased
        memory was extracted from are forgotten and listed as `hidden`; erase them by `turn_id`.
        """
        ids = {"project_id": project_id, "session_id": session_id, "turn_id": turn_id, "memory_id": memory_id}
        if empty := [name for name, id in ids.items() if id is not None and not id]:
            raise InvalidInput(f"`{empty[0]}` is empty; leave it out, or name what to erase")
        scope = parse_scope(user_id, project_id, session_id)
        request = _parse_erasure_request(scope, turn_id, memory_id)
        if (request.target is Target.USER) != everything:
            raise InvalidInput("to erase all data of a user pass everything=True and no other id")
        return await (await self._service()).erasure.erase(scope, request, by=self._author)

    async def list(self, *, since: TimeInput | None = None, user_id: str | None = None) -> builtins.list[Erasure]:
        """Return past erasures, oldest first: ids and digests without content.

        Store them outside the database (`erasure.to_dict()`) to replay them on a restored backup.
        """
        erasures = await (await self._service()).erasure.list(parse_time(since, name="since"))
        return [each for each in erasures if user_id is None or each.user == user_digest(Scope(user_id).user)]

    async def replay(self, erasures: Iterable[Erasure | Mapping[str, Any]]) -> builtins.list[Receipt]:
        """Repeat erasures in a database restored from an older backup, before anything is written to it.

        Erasures that this database has recorded, or has no data for, are skipped.
        """
        parsed = [each if isinstance(each, Erasure) else parse_erasure(each) for each in erasures]
        return await (await self._service()).erasure.replay(parsed, by=self._author)


class AsyncKeys(AsyncNamespace):
    """API keys of the server."""

    async def create(
        self,
        *,
        user_id: str | None = None,
        project_id: str | None = None,
        everyone: bool = False,
        admin: bool = False,
        read: bool = True,
        write: bool = True,
        person: bool = False,
        name: str = "",
        expires_at: TimeInput | None = None,
    ) -> NewKey:
        """Create a key for one user, for everyone, or for an admin; its text is returned only here.

        Changes with the key of a `person` may be recorded as a person's, who approves reviews.
        """
        key = new_key(
            user=user_id,
            project=project_id,
            everyone=everyone,
            admin=admin,
            reads=read,
            writes=write,
            person=person,
            name=name,
            expires_at=None if expires_at is None else as_utc(expires_at, name="expires_at"),
        )
        return await (await self._service()).api_keys.add(key)

    async def list(self, *, user_id: str | None = None) -> builtins.list[ApiKey]:
        """Return the keys of the server or of a user, oldest first."""
        return await (await self._service()).api_keys.list_keys(user_id)

    async def revoke(self, key_id: str) -> ApiKey:
        """Revoke a key."""
        return await (await self._service()).api_keys.revoke(key_id)


class AsyncFiles(AsyncNamespace):
    """Files under /memories, as written by models with a memory tool."""

    async def run(self, command: Mapping[str, Any], *, user_id: str, project_id: str | None = None) -> str:
        """Run a command of Anthropic's memory tool: view, create, str_replace, insert, delete or rename."""
        from recollect.files import run_command

        files = (await self._service()).files
        return await run_command(files, parse_scope(user_id, project_id, None), command, by=self._author)

    async def clear(self, *, user_id: str, project_id: str | None = None) -> str:
        """Forget all files; `undo` restores them."""
        files = (await self._service()).files
        return await files.clear(parse_scope(user_id, project_id, None), by=self._author)


class AsyncAdmin(AsyncNamespace):
    """The store as a whole: users, statistics, cost, maintenance, backup, imports, embedding models."""

    async def users(self) -> list[str]:
        """Return the ids of all users with data."""
        return await (await self._service()).users()

    async def stats(self, user_id: str | None = None) -> Mapping[str, int]:
        """Return the numbers of records of a user or of all users."""
        return await (await self._service()).stats(user_id)

    async def usage(
        self,
        *,
        user_id: str | None = None,
        since: TimeInput | None = None,
        parts: Sequence[Part] = ("day", "model", "step"),
    ) -> list[Usage]:
        """Return LLM calls and tokens by day, model and step."""
        return await (await self._service()).usage.report(user_id, since=parse_time(since, name="since"), by=parts)

    async def spent_today(self, *, user_id: str | None = None) -> SpentToday:
        """Return the LLM tokens since midnight UTC, which the daily limits apply to."""
        return await (await self._service()).usage.spent_today(user_id)

    async def maintain(
        self,
        tasks: Sequence[MaintenanceTask | str] = ("expire", "quota", "prune", "consolidate"),
        *,
        user_id: str,
        project_id: str | None = None,
        dry_run: bool = False,
    ) -> list[MaintenanceReport]:
        """Run maintenance tasks now: expire, quota, prune, consolidate, reflect; each is one change for `undo`."""
        from recollect.service.jobs import parse_tasks

        scope = parse_scope(user_id, project_id, None)
        jobs = (await self._service()).jobs
        return await jobs.run_maintenance(scope, parse_tasks(tasks), by=self._author, dry_run=dry_run)

    async def backup(
        self,
        path: str | PathLike[str],
        *,
        force: bool = False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Backup:
        """Write a backup file with everything acknowledged before the call; `force` replaces an existing file.

        It contains the memories and history of all users and hashes of the API keys: protect it like the database.
        """
        service = await self._service()
        return await service.transfer.backup(Path(path), force=force, progress=progress)

    async def backups(self) -> builtins.list[dict[str, Any]]:
        """Return the newest backups of this ledger, newest first: file, size, and whether it is still there."""
        return await (await self._service()).transfer.backups()

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
        progress: Callable[[int], None] = lambda done: None,
    ) -> ImportReport:
        """Import the data of another product from a file, folder, zip archive, API or database.

        `user_id` receives all of it; otherwise the users of the source named by `of`, or `everyone`, are kept.
        `dry_run` reports without writing. A repeated import changes nothing.
        """
        from recollect.transfer.importers.items import ImportOptions
        from recollect.transfer.importers.source import ImportSource

        options = ImportOptions(
            user=user_id, of=frozenset(of), everyone=everyone, project=project_id, learn=learn, dry_run=dry_run
        )
        import_source = ImportSource(str(source), {"of": sorted(options.of), "token": token})
        service, author = await self._service(), import_author(self._author)
        return await service.transfer.import_from(import_source, options, kind=kind, by=author, progress=progress)

    async def embedding_models(self) -> list[ModelState]:
        """Return the embedding model in use, earlier ones, and the progress of a migration."""
        return await (await self._service()).model_states()

    async def reembed(
        self, progress: Callable[[int], None] = lambda done: None, *, back: bool = False, drop: bool = False
    ) -> int:
        """Embed everything with the model of the settings, then search with it; return the number of new vectors.

        `back` allows a model that another one replaced; `drop` removes the vectors of other models at once instead of
        a day later.
        """
        from recollect.aio.background import report_in_thread

        service = await self._service()
        async with report_in_thread(progress) as report_progress:
            done = await service.reembed(report_progress, back=back, drop=drop)
        await self._connection.wait_for_model()
        return done


def _parse_job_state(state: str) -> JobState:
    """Return the state of that name, or raise `InvalidInput`."""
    if state not in tuple(JobState):
        raise InvalidInput(f"`states` must be of {', '.join(JobState)}, got {state!r}")
    return JobState(state)


def _parse_erasure_request(scope: Scope, turn_id: str | None, memory_id: str | None) -> ErasureRequest:
    """Return the narrowest target that the ids name."""
    if turn_id is not None and memory_id is not None:
        raise InvalidInput("pass either `turn_id` or `memory_id`, not both")
    if turn_id is not None:
        return ErasureRequest(Target.TURN, turn_id)
    if memory_id is not None:
        return ErasureRequest(Target.MEMORY, memory_id)
    return ErasureRequest(Target.SESSION if scope.session else Target.PROJECT if scope.project else Target.USER)
