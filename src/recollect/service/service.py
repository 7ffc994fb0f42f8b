"""The one object behind every door: Python, the command line, HTTP, MCP and the agent all call it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from recollect import recall, remember
from recollect.aio.background import UseCount
from recollect.cache.change_notifier import ChangeNotifier
from recollect.deps import Deps
from recollect.erasure import plan
from recollect.errors import NotFound, RecollectError
from recollect.files.store import MemoryFiles
from recollect.index.vector_store_index import notify_and_sync
from recollect.ledger.model_states import ModelState
from recollect.ledger.protocol import IdempotencyStore, ResponseStore, Revision
from recollect.maintenance import embed_missing, reviews
from recollect.maintenance import undo as undoing
from recollect.maintenance.scheduler import MaintenanceConfig
from recollect.maintenance.worker import RetryPolicy
from recollect.model.change import Author, Change, Forget, HistoryEntry, IdempotencyToken, Outcome, Update
from recollect.model.ids import new_id
from recollect.model.memory import MemoryRecord
from recollect.model.query import EVERYTHING, Listing
from recollect.model.result import Page, RecallResult, RememberResult, SearchResult
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Turn
from recollect.model.validity import exclude_expired
from recollect.models.chat import Chat
from recollect.models.embedding import EmbeddingModel
from recollect.observability.metrics import REMEMBER_SECONDS
from recollect.observability.tracing import span
from recollect.read import as_of_queries
from recollect.read.access_counter import AccessCounter
from recollect.read.llm_budget import LlmBudget, MeteredChat
from recollect.read.result_cache import CachedAnswer, ResultCache
from recollect.read.telemetry import observe_read
from recollect.recall import RecallConfig, RecallRequest
from recollect.remember import LearningConfig, MemoryInput
from recollect.search import SearchDeps, SearchRequest
from recollect.service.api_keys import ApiKeys
from recollect.service.learning_models import LearningModels, with_chat_model
from recollect.service.operations import Operations
from recollect.service.transfer import TransferService
from recollect.write.draft import validate_fields
from recollect.write.embed import embed
from recollect.write.write_quota import WriteQuota

_log = logging.getLogger("recollect")

# Learning starts a moment later, so that it does not compete with the answer and takes in what is said by then.
_LEARN_DELAY_S = 0.5
# How many memories one transaction forgets at most, so that other writers get their turn.
_FORGET_BATCH = 500


class Service:
    """Memory for many users: what is written, what is found, what happened, what is undone."""

    def __init__(
        self,
        search_deps: SearchDeps,
        *,
        chat: Chat | None = None,
        recall_config: RecallConfig | None = None,
        learning: LearningConfig | None = None,
        maintenance: MaintenanceConfig | None = None,
        max_concurrent_jobs: int = 4,
        retry_policy: RetryPolicy | None = None,
        max_waiting_jobs: int = 1000,
        max_memories: int = 0,
        spill: Path | None = None,
        result_cache: ResultCache | None = None,
        change_notifier: ChangeNotifier | None = None,
        models: LearningModels | None = None,
    ) -> None:
        self._ledger = search_deps.ledger
        self.change_notifier = change_notifier or ChangeNotifier()
        self._ledger.on_change = notify_and_sync(search_deps.index, self.change_notifier.notify)
        self._result_cache = result_cache
        self._lookup_source = (
            result_cache.lookup_cache
            if result_cache is not None and result_cache.lookup_cache is not None
            else search_deps.ledger
        )
        self.write_quota = WriteQuota(search_deps.ledger, max_memories)
        self._index = search_deps.index
        self._embedder = search_deps.embedder
        self._search_deps = search_deps
        self._chat = chat
        self._recall_config = recall_config or RecallConfig()
        self._access_counter = AccessCounter(search_deps.ledger)
        self.api_keys = ApiKeys(search_deps.ledger)
        self._learning = learning or LearningConfig()
        self._llm_budget = LlmBudget(search_deps.ledger, self._learning.allowance)
        self._redacting = self._learning.redactor
        self._deps = Deps(search_deps.ledger, search_deps.index, search_deps.embedder, chat)
        # Those who are at work with it for long: until they are done it is not closed for another to take its place.
        self.use_count = UseCount()
        self.transfer = TransferService(self._deps, self._learning, self.write_quota, self.use_count)
        self.files = MemoryFiles(self._deps, self._redacting, admit=self.write_quota.admit)
        self.operations = Operations(
            self._deps,
            self._learning,
            maintenance,
            max_concurrent_jobs=max_concurrent_jobs,
            retry_policy=retry_policy,
            max_waiting_jobs=max_waiting_jobs,
            spill=spill,
            result_cache=result_cache,
            models=models,
        )

    @property
    def cache_trouble(self) -> str:
        """Why answers are not given again now though they could be; empty if they are, or need not be."""
        return self._result_cache.last_error if self._result_cache else ""

    @property
    def model(self) -> EmbeddingModel:
        """The model whose vectors are searched."""
        return self._embedder.model

    # Writing

    async def add(
        self, scope: Scope, new: MemoryInput, *, by: Author, idempotency: IdempotencyToken | None = None
    ) -> Outcome:
        """Keep a memory as it is given, but for secrets."""
        await self.write_quota.admit(scope.user, 1)
        outcome = await remember.add(
            scope,
            new,
            ledger=self._ledger,
            embedder=self._embedder,
            redactor=self._redacting,
            by=by,
            idempotency=idempotency,
        )
        await self.operations.enforce_quotas(scope)
        return outcome

    async def remember(
        self,
        scope: Scope,
        messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        by: Author,
        wait_s: float = 0.0,
        mode: str | None = None,
        received_at: datetime | None = None,
        model: str = "",
    ) -> RememberResult:
        """Keep what was said; what it says is learned behind, or before this returns if it may take so long.

        Messages that name their `turn_id` can come again and change nothing; `received_at` is when they first came,
        and `model` the one that their chat names.
        """
        await self.operations.check_backlog(scope.user)
        await self.write_quota.admit(scope.user, 1 if isinstance(messages, str | Mapping) else len(messages))
        with span("recollect.remember") as trace:
            started = perf_counter()
            learning = with_chat_model(self._learning, model, self.operations.models)
            appended = await remember.remember(
                scope, messages, self._deps, learning, by=by, mode=mode, received_at=received_at
            )
            REMEMBER_SECONDS.observe(perf_counter() - started)
            trace.set_attributes({"turns": len(appended.turns), "jobs": len(appended.jobs)})
        if (job := next(iter(appended.jobs), None)) is None:
            return RememberResult(appended.turns, redacted=appended.redacted)
        if wait_s:
            job = await self.operations.wait_for_job(scope.user, job.id, within_s=wait_s)
            await self.operations.enforce_quotas(scope)
        else:
            self.operations.worker.wake(after_s=_LEARN_DELAY_S)
        return RememberResult(appended.turns, job, appended.redacted)

    async def update(
        self, scope: Scope, id: str, fields: Mapping[str, Any], *, by: Author, expected_version: int | None = None
    ) -> Outcome:
        """Give fields of a memory new values; new words are embedded anew."""
        fields = validate_fields(fields)
        key = None
        if fields.get("value"):
            record = await self.get(scope, id)
            key = record.key
            # A keyed fact that has no words of its own reads "key: value", and goes on to.
            if "content" not in fields and record.content == f"{key}: {record.value}":
                fields["content"] = f"{key}: {fields['value']}"
        fields, redacted = self._redacting.redact_fields(fields, key=key)
        vector = None
        if "content" in fields:
            [vector] = await embed([fields["content"]], embedder=self._embedder)
        outcome = await self._apply(scope, Update(id, fields, expected_version, vector), by=by)
        return replace(outcome, redacted=redacted)

    async def forget(
        self, scope: Scope, id: str, *, by: Author, expected_version: int | None = None, sources: bool = True
    ) -> Outcome:
        """Take a memory out of recall; undo or restore brings it back.

        With it goes whatever would go on saying it: the turns a memory was learned from, what was learned from a turn
        alone, and the assistant's repetitions. One undo brings all of them back.
        """
        changes = [Forget(id, expected_version)]
        if sources:
            record = await self.get(scope, id)
            changes += [Forget(each.id) for each in await plan.find_dependents([record], ledger=self._ledger)]
        applied = await self._ledger.apply(scope, changes, by=self._redacting.redact_author(by))
        self.operations.session_resolver.forget(scope.user)
        return applied.outcomes[0]

    async def restore(self, scope: Scope, id: str, *, by: Author) -> Outcome:
        """Make a forgotten or superseded memory active again; one that waited for review waits again."""
        record = await self.get(scope, id)
        restored = await reviews.restore(scope, record, by=self._redacting.redact_author(by), ledger=self._ledger)
        self.operations.session_resolver.forget(scope.user)
        return restored

    async def forget_all(self, scope: Scope, listing: Listing, *, by: Author) -> int:
        """Forget everything of a listing with whatever would go on saying it; return how many it had."""
        await self.operations.import_spilled(scope.user)
        count = 0
        listing = replace(listing, limit=_FORGET_BATCH, cursor=None)
        by = replace(self._redacting.redact_author(by), batch=new_id())
        is_whole = listing.filter == EVERYTHING
        while page := await self._ledger.find(scope, listing):
            related: list[MemoryRecord] = []
            if not is_whole or scope != Scope(scope.user):
                related = await plan.find_dependents(page.records, ledger=self._ledger, whole=is_whole)
            await self._ledger.apply(scope, [Forget(each.id) for each in (*page, *related)], by=by)
            count += len(page)
        self.operations.session_resolver.forget(scope.user)
        return count

    async def undo(
        self, scope: Scope, entry_id: int | None = None, *, by: Author, anyones: bool = False
    ) -> tuple[Outcome, ...]:
        """Take back a change by its number in history; without one, the last thing someone did, whole.

        What was learned or put in order behind is nobody's doing, and counts only with `anyones`. What someone said
        is taken back together with what was learned from it alone.
        """
        outcomes = await undoing.undo(
            scope, entry_id, ledger=self._ledger, by=self._redacting.redact_author(by), any_author=anyones
        )
        self.operations.session_resolver.forget(scope.user)
        await self._embed_missing(scope.user)
        return outcomes

    async def _embed_missing(self, user: str) -> None:
        """Words that came back need their vectors back; while the embedder is away they are found by words."""
        try:
            await embed_missing.embed_missing(ledger=self._ledger, embedder=self._embedder, user=user)
        except RecollectError as error:
            _log.warning("some memories of this user have no vectors for now: %s", error)

    async def _apply(self, scope: Scope, change: Change, *, by: Author) -> Outcome:
        return (await self._ledger.apply(scope, [change], by=self._redacting.redact_author(by))).outcomes[0]

    # Reading

    async def search(self, scope: Scope, request: SearchRequest) -> SearchResult:
        """The memories that fit a question, best first."""
        with observe_read("recollect.search") as watching:
            result = await self._search(scope, request)
            watching.record_search(result)
        self._access_counter.record(scope, (hit.id for hit in result))
        return result

    async def _search(self, scope: Scope, request: SearchRequest) -> SearchResult:
        # Whoever searches wants the best hits, alike or not; variety is for prompts.
        ranking = replace(self._recall_config.ranking, diversity=1.0)
        lookup = None
        if (
            self._result_cache
            and not request.explain
            and not request.trace
            and request.as_of is None
            and request.vector is None
        ):
            lookup = await self._result_cache.look_up(scope, f"search {request!r}")
            if lookup.answer is not None:
                return SearchResult(lookup.answer.hits, notes=lookup.answer.notes)
        result = await recall.search(scope, request, ranking, self._search_deps)
        if self._result_cache and lookup is not None and not result.notes:
            self._result_cache.store(lookup, CachedAnswer(request.query, result.hits))
        return result

    async def recall(self, scope: Scope, request: RecallRequest) -> RecallResult:
        """The memories that help with what is being said, and the messages with them in their place."""
        llm = MeteredChat(self._chat, scope.user, self._llm_budget) if self._chat is not None else None
        with observe_read("recollect.recall") as watching:
            result = await recall.recall(
                scope, request, self._recall_config, self._search_deps, llm=llm, result_cache=self._result_cache
            )
            watching.record_recall(result)
        self._access_counter.record(scope, result.context.used)
        return result

    async def get(self, scope: Scope, id: str, *, as_of: datetime | None = None) -> MemoryRecord:
        """One memory of the user, as it was; an unknown id and another user's are the same NotFound."""
        if as_of is not None:
            return await as_of_queries.get_as_of(scope, id, as_of, ledger=self._ledger)
        records = await self._lookup_source.get(scope, [id])
        if not records:
            raise NotFound(f"no memory {id}")
        return records[0]

    async def find(self, scope: Scope, listing: Listing, *, as_of: datetime | None = None) -> Page:
        """Memories in order, a page at a time: those that have not expired, or what held at a moment, as it was."""
        if as_of is not None:
            return await as_of_queries.find_as_of(scope, listing, as_of, ledger=self._ledger)
        return await self._lookup_source.find(
            scope, exclude_expired(listing, coarse=self._lookup_source is not self._ledger)
        )

    async def count(self, scope: Scope, listing: Listing) -> int:
        """How many there are."""
        return await self._lookup_source.count(
            scope, exclude_expired(listing, coarse=self._lookup_source is not self._ledger)
        )

    async def history(
        self,
        scope: Scope,
        *,
        memory_id: str | None = None,
        limit: int = 100,
        before: int | None = None,
        after: int | None = None,
    ) -> list[HistoryEntry]:
        """What happened to a memory or to all of the user's, newest first; with `after`, since then, oldest first."""
        if memory_id is not None:
            await self.get(scope, memory_id)
        return await self._ledger.history(scope, memory_id=memory_id, limit=limit, before=before, after=after)

    async def revision(self, user: str) -> Revision:
        """How often the user's memories were changed and erased, by whatever process: cheap to ask now and then."""
        return await self._ledger.revision(user)

    async def turns(self, scope: Scope, *, after: int = 0, limit: int = 100) -> list[Turn]:
        """What was said in a session."""
        return await self._ledger.turns(scope, after=after, limit=limit)

    async def conversation(self, scope: Scope) -> Conversation:
        """The state of a session."""
        return await self._ledger.conversation(scope)

    async def users(self) -> list[str]:
        """Everyone who has memories."""
        return await self._ledger.users()

    @property
    def responses(self) -> ResponseStore:
        """The Responses and Conversations of OpenAI's API that are kept."""
        return self._ledger

    @property
    def replies(self) -> IdempotencyStore:
        """The answers to requests that came with a key."""
        return self._ledger

    async def epoch(self, user: str) -> int:
        """What counts how often something of the user was erased."""
        return (await self._ledger.revision(user)).epoch

    # Upkeep

    async def reembed(self, progress: Callable[[int], None], *, back: bool = False, drop: bool = False) -> int:
        """Bring the ledger to the model that the settings name; gives how many vectors were made."""
        if (change := self.operations.embedding_migration) is not None:
            return await change.migrate(progress, allow_retired=back, drop=drop)
        return await embed_missing.embed_missing(ledger=self._ledger, embedder=self._embedder, progress=progress)

    async def model_states(self) -> list[ModelState]:
        """Which model is searched, which were before, and how far another one is."""
        return await self._ledger.model_states()

    async def ping(self) -> None:
        """Raise what is wrong if the ledger does not answer."""
        await self._ledger.revision("")

    async def stats(self, user: str | None = None) -> Mapping[str, int]:
        """How much there is."""
        return await self._ledger.stats(user)

    async def check(self) -> list[str]:
        """What is wrong with the ledger, a sentence each."""
        return await self._ledger.check()

    async def rebuild_terms(self, progress: Callable[[int], None] = lambda done: None) -> None:
        """Make the full text anew."""
        await self._ledger.rebuild_terms(progress)

    async def close(self) -> None:
        """Finish what is under way and let go of everything."""
        async with AsyncExitStack() as parts:
            # The last is closed first, and each of them even if closing another fails.
            models = (self._embedder, self._index, self._search_deps.reranker, self._chat)
            for part in (self._ledger, *models, self._result_cache, self.change_notifier):
                if part is not None:
                    parts.push_async_callback(part.close)
            parts.push_async_callback(self.write_quota.close)
            parts.push_async_callback(self._access_counter.close)
            parts.push_async_callback(self._llm_budget.close)
            parts.push_async_callback(self.api_keys.close)
            parts.push_async_callback(self.operations.close)
