"""`AsyncMemory`, the Python API: validates arguments and calls the service, which it opens on first use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from recollect import namespaces
from recollect.errors import InvalidInput, Unavailable
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
from recollect.model.change import Actor, Author, HistoryEntry, Outcome
from recollect.model.graph import DEFAULT_NODES, Graph, GraphRequest
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import Filter, Listing, Not, Op, Order, both, parse_filter, where
from recollect.model.result import Page, RecallOutcome, RecallResult, RememberResult, SearchResult
from recollect.model.scope import Scope
from recollect.model.text import validate_text
from recollect.model.times import now
from recollect.namespaces import DEFAULT_AUTHOR, Connection, import_author

if TYPE_CHECKING:
    from recollect.config.settings import Settings
    from recollect.models.embedding import Embedder
    from recollect.service.service import Service
    from recollect.transfer.import_ import ImportCounts


_IMPORT_BATCH = 500
_NOT_TURNS = Not(where("category", Op.EQ, "turn"))


class AsyncMemory:
    """Long-term memory for the users of an application.

    `AsyncMemory()` stores it in the default home, `AsyncMemory(home=path)` in another folder,
    `AsyncMemory("postgresql://...")` in PostgreSQL. It opens on first use; close it, or use `async with`.
    Further operations are in the namespaces `admin`, `erasure`, `files`, `jobs`, `keys`, `reviews` and `sessions`.
    """

    def __init__(
        self,
        database: str | None = None,
        *,
        home: str | PathLike[str] | None = None,
        embedder: str | Embedder | None = None,
        preset: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        name, instance = (embedder, None) if isinstance(embedder, str) else (None, embedder)
        overrides = {"database": database, "home": home, "preset": preset, "embedder": name}
        self._connection = Connection(overrides, embedder=instance, settings=settings)
        self._bind(DEFAULT_AUTHOR)

    def _bind(self, author: Author) -> None:
        connection, self._author = self._connection, author
        self.admin = namespaces.AsyncAdmin(connection, author)
        self.erasure = namespaces.AsyncErasure(connection, author)
        self.files = namespaces.AsyncFiles(connection, author)
        self.jobs = namespaces.AsyncJobs(connection, author)
        self.keys = namespaces.AsyncKeys(connection, author)
        self.reviews = namespaces.AsyncReviews(connection, author)
        self.sessions = namespaces.AsyncSessions(connection, author)

    async def open(self) -> Self:
        """Open the store now instead of on first use, so that problems show here."""
        self._connection.is_closed = False
        await self.service()
        return self

    async def close(self) -> None:
        """Finish running work and close the store."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def acting_as(self, name: str, *, why: str = "", actor: Actor | str = Actor.AGENT) -> Self:
        """Return this memory with an author: `name` and `why` appear in the history of its changes."""
        view = copy(self)
        view._bind(parse_author(name, why, actor=actor))
        return view

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._connection.settings

    async def service(self) -> Service:
        """Return the service that all interfaces call; for integrations in the same process."""
        return await self._connection.service()

    @overload
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
        **fields: Unpack[RecordFields],
    ) -> Outcome: ...

    @overload
    async def add(
        self,
        content: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
    ) -> RememberResult: ...

    async def add(
        self,
        content: str | Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
        correction: bool = False,
        embedding: Sequence[float] | None = None,
        idempotency_key: str | None = None,
        **fields: Unpack[RecordFields],
    ) -> Outcome | RememberResult:
        """Store a text as written, or learn from a list of messages and wait for the result, like `remember`.

        A text that repeats a memory is not stored twice. With `key` and `value` it is a fact that has one value:
        a new value supersedes the old one if it is at least as confident, or a `correction`.
        """
        from recollect.remember import MemoryInput

        if content is not None and not isinstance(content, str):
            if fields or correction or embedding is not None or idempotency_key is not None:
                raise InvalidInput(
                    "`add` takes fields only with a text; messages take user_id, project_id, session_id"
                )
            return await self.remember(
                content, user_id=user_id, project_id=project_id, session_id=session_id, wait=True
            )
        service = await self.service()
        vector = await service.check_embedding(embedding)
        new = MemoryInput(content=content, fields=fields, vector=vector, correction=correction)
        scope = parse_scope(user_id, project_id, session_id)
        idempotency = parse_idempotency_key(idempotency_key, "add", scope, content, fields)
        return await service.add(scope, new, by=self._author, idempotency=idempotency)

    async def remember(
        self,
        messages: MessagesInput,
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
        wait: bool | float = False,
        mode: str | None = None,
    ) -> RememberResult:
        """Store OpenAI-style messages, in order; they are on disk and can be searched when this returns.

        Facts are extracted in the background. `wait` waits for it, up to a minute or the given seconds; the result's
        `job` has the outcome. `mode` sets what is extracted: chat, document, task or profile.
        """
        service = await self.service()
        scope = parse_scope(user_id, project_id, session_id)
        if self.settings.worker:
            service.jobs.start()
        return await service.remember(scope, messages, by=self._author, wait_s=parse_wait(wait), mode=mode)

    async def update(
        self,
        memory_id: str,
        content: str | None = None,
        *,
        user_id: str,
        expected_version: int | None = None,
        **fields: Unpack[RecordFields],
    ) -> Outcome:
        """Change a memory; `expected_version` raises `Conflict` if it was changed meanwhile."""
        changes: dict[str, Any] = dict(fields) if content is None else {**fields, "content": content}
        if not changes:
            raise InvalidInput("nothing to update; give the content or a field")
        version = parse_number(expected_version, name="expected_version")
        service = await self.service()
        return await service.update(Scope(user_id), memory_id, changes, by=self._author, expected_version=version)

    async def delete(self, memory_id: str, *, user_id: str, sources: bool = True) -> Outcome:
        """Forget a memory: it is not found any more, and `undo` restores it.

        The turns it was extracted from, memories extracted from the same turn only, and the assistant's repetitions
        are forgotten with it, unless `sources` is False.
        """
        service = await self.service()
        return await service.forget(Scope(user_id), memory_id, by=self._author, sources=sources)

    async def restore(self, memory_id: str, *, user_id: str) -> Outcome:
        """Make a forgotten or superseded memory active."""
        return await (await self.service()).restore(Scope(user_id), memory_id, by=self._author)

    async def delete_all(
        self,
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
        filters: Filter | Mapping[str, Any] | None = None,
    ) -> int:
        """Forget all memories and turns of the scope that match; return their number."""
        scope = parse_scope(user_id, project_id, session_id)
        service = await self.service()
        return await service.forget_all(scope, Listing(filter=parse_filter(filters)), by=self._author)

    async def undo(self, change_id: int | None = None, *, user_id: str, anyones: bool = False) -> tuple[Outcome, ...]:
        """Undo a change by its id in `history`, by default the last action of a person or agent.

        Undoing a message also undoes what was extracted from it. `anyones` includes background changes.
        """
        number = parse_number(change_id, name="change_id")
        service = await self.service()
        return await service.undo(Scope(user_id), number, by=self._author, anyones=anyones)

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
        """Return the memories and turns that match the query, best first, with scores from 0 to 1.

        Expressions such as "last March" are relative to `at`, by default now. `as_of` searches an earlier state.
        `explain` gives each hit a reason, `trace` returns every candidate with its scores and its outcome.
        """
        from recollect.search import SearchRequest
        from recollect.text.time_expressions import parse_time_filter

        service = await self.service()
        query = validate_text(query, name="query")
        times = parse_time_filter(query, at=parse_time(at, name="at") or now(), mode=self.settings.time_words)
        request = SearchRequest(
            query=query,
            limit=parse_limit(self.settings.search_limit if limit is None else limit),
            filter=both(parse_filter(filters), times.filter),
            min_score=self._min_score(min_score),
            vector=await service.check_embedding(embedding),
            as_of=parse_time(as_of, name="as_of"),
            periods=times.periods,
            explain=explain,
            trace=trace,
        )
        return await service.search(parse_scope(user_id, project_id, session_id), request)

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
        """Return the memories that help to answer the last message, as hits, as a prompt block, and in the messages.

        It decides whether to search, completes a vague question from the messages before it, and includes the user's
        keyed facts, constraints and instructions. If memory is unavailable, the outcome says so and the messages are
        returned unchanged.
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
        self._connection.check_open()
        try:
            service = await self.service()
        except Unavailable as error:
            unchanged = tuple(request.messages)
            return RecallResult(outcome=RecallOutcome.UNAVAILABLE, reason=str(error), messages=unchanged)
        return await service.recall(scope, request)

    def _min_score(self, min_score: float | None) -> float:
        return parse_score(self.settings.search_min_score if min_score is None else min_score, name="min_score")

    async def get(self, memory_id: str, *, user_id: str, as_of: TimeInput | None = None) -> MemoryRecord:
        """Return one memory, whatever its status; `as_of` returns its state at that time."""
        return await (await self.service()).get(Scope(user_id), memory_id, as_of=parse_time(as_of, name="as_of"))

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
        """Return a page of the memories in the scope; `turns` includes messages, `as_of` lists an earlier state."""
        parsed = parse_filter(filters)
        listing = Listing(
            filter=parsed if turns else both(parsed, _NOT_TURNS),
            statuses=tuple(parse_status(status) for status in statuses),
            order=order,
            limit=parse_limit(limit),
            cursor=cursor,
        )
        scope, moment = parse_scope(user_id, project_id, session_id), parse_time(as_of, name="as_of")
        return await (await self.service()).find(scope, listing, as_of=moment)

    async def history(
        self, memory_id: str | None = None, *, user_id: str, limit: int = 100, before: int | None = None
    ) -> list[HistoryEntry]:
        """Return the changes of a memory, or of all memories of the user, newest first."""
        service = await self.service()
        before = parse_number(before, name="before")
        return await service.history(Scope(user_id), memory_id=memory_id, limit=parse_limit(limit), before=before)

    async def graph(
        self,
        around: str,
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
        depth: int = 1,
        limit: int = DEFAULT_NODES,
        superseded: bool = False,
    ) -> Graph:
        """Return what is related to a name, a key or a memory id: memories, names, keys and sessions, with edges.

        `depth` is the number of edges to follow, 1 or 2; `limit` that of nodes, up to 200. `superseded` includes
        earlier versions. A name that nothing visible mentions gives an empty graph.
        """
        request = GraphRequest(around=around, depth=depth, limit=limit, superseded=superseded)
        return await (await self.service()).graph(parse_scope(user_id, project_id, session_id), request)

    async def export(
        self,
        *,
        user_id: str | None = None,
        project_id: str | None = None,
        sessions: bool = True,
        embeddings: bool = False,
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield memories and turns as plain values, oldest first; without a user, those of all users.

        The state of each session follows, with its summary, unless `sessions` is False. `embeddings` adds the
        vectors of the current model.
        """
        service = await self.service()
        with service.use_count.track():
            for user in [user_id] if user_id is not None else await service.users():
                scope = parse_scope(user, project_id, None)
                async for line in service.transfer.export(scope, sessions=sessions, embeddings=embeddings):
                    yield line

    async def import_(
        self,
        lines: Iterable[Mapping[str, Any]],
        *,
        user_id: str | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> ImportCounts:
        """Add the missing records of an export; `user_id` assigns all of them to that user."""
        from recollect.transfer.import_ import ImportCounts

        author, total, done, remaining = import_author(self._author), ImportCounts(), 0, iter(lines)
        await self.service()
        # In a thread, because the lines and the progress may be produced by calling this memory.
        while batch := await asyncio.to_thread(list, islice(remaining, _IMPORT_BATCH)):
            service = await self.service()
            total += await service.transfer.import_lines(batch, user=user_id, done=done, by=author)
            done += len(batch)
            await asyncio.to_thread(progress, done)
        return total
