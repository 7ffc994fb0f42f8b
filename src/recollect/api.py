"""AsyncMemory: the Python door. It turns keywords into scopes and requests, and calls the service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Unpack

from recollect.api_care import _OperationsMixin
from recollect.api_move import _TransferMixin
from recollect.api_open import _ServiceAccess
from recollect.errors import InvalidInput, Unavailable
from recollect.model.asked import (
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
from recollect.model.change import HistoryEntry, Outcome
from recollect.model.filters import parse_filter, where
from recollect.model.given import MessagesInput, RecordFields, TimeInput
from recollect.model.memory import MemoryRecord, Status
from recollect.model.outcome import RecallOutcome
from recollect.model.query import Filter, Listing, Not, Op, Order, both
from recollect.model.remembered import RememberResult
from recollect.model.result import Page, RecallResult, SearchResult
from recollect.model.scope import Scope
from recollect.model.text import validate_text
from recollect.model.times import now
from recollect.model.turn import Turn

if TYPE_CHECKING:
    from recollect.ledger.model_states import ModelState
    from recollect.upkeep.transfer import ImportCounts

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
        from recollect.language.when import parse_time_filter
        from recollect.recall import SearchRequest

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
        from recollect.upkeep.transfer import ImportCounts

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
        from recollect.upkeep.aside import report_in_thread

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
