"""`Service`: the one object that all interfaces call."""

from __future__ import annotations

import builtins
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from recollect import recall, remember, search
from recollect.aio.background import UseCount
from recollect.cache.change_notifier import ChangeNotifier
from recollect.config.fields import MaintenanceSettings, RecallSettings
from recollect.deps import Deps
from recollect.erasure import find_dependents
from recollect.errors import Conflict, NotFound, QuotaReached, RecollectError
from recollect.files import MemoryFiles
from recollect.index.vector_store_index import last_index_error, notify_and_sync
from recollect.ledger.ledger import Ledger, quota_exceeded_reason, read_pages
from recollect.ledger.types import ModelState, Revision
from recollect.maintenance import undo as undoing
from recollect.maintenance.embedding_migration import EmbeddingMigration, embed_missing
from recollect.maintenance.scheduler import MaintenanceSchedule
from recollect.model.change import (
    Actor,
    Author,
    ConversationUpdate,
    Forget,
    HistoryEntry,
    IdempotencyToken,
    ModelUsage,
    Outcome,
    Update,
)
from recollect.model.erasure import Receipt, user_digest
from recollect.model.graph import Graph, GraphRequest
from recollect.model.ids import new_id
from recollect.model.job import Job
from recollect.model.memory import Category, MemoryRecord, Status, Trust
from recollect.model.query import EVERYTHING, Listing, Op, Where, exclude_expired
from recollect.model.result import Facets, Hit, Page, PromptBlock, RecallResult, RememberResult, SearchResult
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation, Turn
from recollect.model.usage import LlmQuota, Part, SpentToday, Usage
from recollect.models.chat import Chat
from recollect.models.embedding import EmbeddingModel
from recollect.models.llm_breaker import describe_open_breakers
from recollect.observability.metrics import REMEMBER_SECONDS
from recollect.observability.tracing import span
from recollect.quotes.quoted_text import quotes_instruction
from recollect.read import as_of_queries
from recollect.read.access_counter import AccessCounter
from recollect.read.conversation_history import invocation_lines
from recollect.read.explain import break_down_score
from recollect.read.format import format_context
from recollect.read.graph import build_graph
from recollect.read.llm_budget import LlmBudget, MeteredChat
from recollect.read.rerank import rerank
from recollect.read.result_cache import CachedAnswer, ResultCache
from recollect.read.rewrite import last_question
from recollect.read.telemetry import observe_read
from recollect.recall import RecallRequest, readable_messages
from recollect.remember import LearningConfig, MemoryInput
from recollect.search import SearchDeps, SearchRequest
from recollect.service.api_keys import ApiKeys
from recollect.service.diagnosis import CheckResult, check_embedder, check_store
from recollect.service.erasure import ErasureService, MirrorFiles
from recollect.service.jobs import JobService, LearningModels, deps_within_budget, with_chat_model
from recollect.service.logs import AuditLog, LoggedRecall, RecallLog
from recollect.service.reviews import ReviewService, restore
from recollect.service.transfer import TransferService
from recollect.sessions import lifecycle
from recollect.sessions.agent_runs import RunRecord
from recollect.sessions.lifecycle import retract_turns
from recollect.sessions.resolve import SessionResolver
from recollect.write.draft import validate_fields
from recollect.write.embed import accept_vector, embed
from recollect.write.triggers import close_job
from recollect.write.write_quota import WriteQuota

if TYPE_CHECKING:
    from recollect.model.change import Vector


__all__ = ["ModelState", "Revision", "Service", "ServiceConfig", "break_down_score"]
_log = logging.getLogger("recollect")
# Extraction starts a moment later, so that it does not compete with the answer and includes the next messages.
_LEARN_DELAY_S = 0.5
# The most memories that one transaction forgets, so that other writers get their turn.
_FORGET_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """The configuration of a service. `max_memories` limits the records of a user; 0 means no limit.

    `recall_log` is the number of recalls that are kept in memory.
    """

    recall: RecallSettings = field(default_factory=RecallSettings)
    learning: LearningConfig = field(default_factory=LearningConfig)
    maintenance: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    schedule: MaintenanceSchedule = field(default_factory=MaintenanceSchedule)
    max_memories: int = 0
    recall_log: int = 0
    spill: Path | None = None


class Service:
    """Memory for many users: write, read, history and undo.

    Other operations are grouped: `jobs`, `sessions`, `reviews`, `erasure`, `usage`, `transfer`, `files`, `api_keys`.
    `deps` and `search_deps` are the stores and models it was built with; interfaces use its methods instead.
    """

    def __init__(
        self,
        search_deps: SearchDeps,
        config: ServiceConfig | None = None,
        *,
        chat: Chat | None = None,
        result_cache: ResultCache | None = None,
        change_notifier: ChangeNotifier | None = None,
        models: LearningModels | None = None,
        migration: EmbeddingMigration | None = None,
    ) -> None:
        config = config or ServiceConfig()
        self.search_deps = search_deps
        self._ledger, self._embedder = search_deps.ledger, search_deps.embedder
        self._chat = chat
        self._recall_config, self._learning = config.recall, config.learning
        # A search returns the best hits, similar or not; diversity is for prompts.
        self._search_ranking = config.recall.model_copy(update={"diversity": 1.0})
        self._redactor = config.learning.redactor
        self.result_cache = result_cache
        lookup_cache = result_cache.lookup_cache if result_cache is not None else None
        self._lookup_source = search_deps.ledger if lookup_cache is None else lookup_cache
        self._models = models
        self.change_notifier = change_notifier or ChangeNotifier()
        self._late = search_deps.late
        self._notify_change = notify_and_sync(search_deps.index, self.change_notifier.notify)
        self._ledger.on_change = self._on_change
        self._access_counter = AccessCounter(self._ledger)
        self._llm_budget = LlmBudget(self._ledger, config.learning.allowance)
        # Long-running callers: a replaced service is not closed before they are done.
        self.use_count = UseCount()
        self.recall_log = RecallLog(config.recall_log)
        self.write_quota = WriteQuota(self._ledger, config.max_memories)
        self.embedding_migration = migration
        # Set by the wiring, because the mirror itself calls the service.
        self.mirror: MirrorFiles | None = None
        deps = self.deps = Deps(self._ledger, search_deps.index, self._embedder, chat)
        self.api_keys = ApiKeys(self._ledger)
        self.audit = AuditLog(self._ledger)
        self.transfer = TransferService(deps, self._redactor, self.write_quota, self.use_count)
        self.files = MemoryFiles(deps, self._redactor, admit=self.write_quota.admit)
        self.usage = UsageService(self._ledger, config.learning.allowance)
        self.reviews = ReviewService(deps, self._redactor)
        self.jobs = JobService(
            deps, config.learning, config.maintenance, schedule=config.schedule, models=models, migration=migration
        )
        self.sessions = SessionService(deps, config.learning, self.jobs)
        self.erasure = ErasureService(
            deps,
            config.learning,
            spill=config.spill,
            result_cache=result_cache,
            models=models,
            on_erased=self._on_erased,
        )

    @property
    def cache_trouble(self) -> str:
        """The last error of the result cache, or an empty text."""
        return self.result_cache.last_error if self.result_cache else ""

    @property
    def index_trouble(self) -> str:
        """The last error of the index, while searches work around it, or an empty text."""
        return last_index_error(self.deps.index)

    @property
    def llm_trouble(self) -> str:
        """The LLMs that are not called because they keep failing, or an empty text."""
        return describe_open_breakers()

    @property
    def model(self) -> EmbeddingModel:
        return self._embedder.model

    def _on_change(self, user: str) -> None:
        self._notify_change(user)
        if self._late is not None:
            self._late.schedule(user)

    # Writing

    async def add(
        self, scope: Scope, new: MemoryInput, *, by: Author, idempotency: IdempotencyToken | None = None
    ) -> Outcome:
        """Store a memory as written, except for secrets; raise QuotaReached if all others are more important."""
        await self.write_quota.admit(scope.user, 1)
        if new.fields.get("importance") is None:
            new = replace(new, fields={**new.fields, "importance": self._learning.limits.default_importance})
        outcome = await remember.add(scope, new, self.deps, self._learning, by=by, idempotency=idempotency)
        if outcome.id in await self.jobs.enforce_quotas(scope):
            if idempotency is not None:
                # It had no effect, so that a retry runs it.
                await self._ledger.release_key(scope.user, idempotency, answered=True)
            importance = f"{outcome.record.importance:g}"
            raise QuotaReached(
                f"The quota is full of memories that are more important than {importance}: delete one, or add this"
                " one with a higher importance"
            )
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
        """Store messages; facts are extracted in the background, or within `wait_s` before this returns.

        Messages with a known `turn_id` change nothing. `received_at` is the time of their first arrival, `model` that
        of their chat.
        """
        await self.jobs.check_backlog(scope.user)
        await self.write_quota.admit(scope.user, 1 if isinstance(messages, str | Mapping) else len(messages))
        with span("recollect.remember") as trace:
            started = perf_counter()
            learning = with_chat_model(self._learning, model, self._models)
            appended = await remember.remember(
                scope, messages, self.deps, learning, by=by, mode=mode, received_at=received_at
            )
            REMEMBER_SECONDS.observe(perf_counter() - started)
            trace.set_attributes({"turns": len(appended.turns), "jobs": len(appended.jobs)})
        if (job := next(iter(appended.jobs), None)) is None:
            # No job will do so.
            await self.jobs.enforce_quotas(scope)
            return RememberResult(appended.turns, redacted=appended.redacted)
        if wait_s:
            job = await self.jobs.wait(scope.user, job.id, within_s=wait_s)
            if self._late is not None:
                await self._late.flush(scope.user)
            await self.jobs.enforce_quotas(scope)
        else:
            self.jobs.worker.wake(after_s=_LEARN_DELAY_S)
        return RememberResult(appended.turns, job, appended.redacted)

    async def update(
        self, scope: Scope, id: str, fields: Mapping[str, Any], *, by: Author, expected_version: int | None = None
    ) -> Outcome:
        """Change fields of a memory; a new content is embedded."""
        fields = await self._settle_trust(scope, id, validate_fields(fields), by)
        key = None
        if fields.get("value"):
            record = await self.get(scope, id)
            key = record.key
            # A keyed fact without a text of its own reads "key: value".
            if "content" not in fields and record.content == f"{key}: {record.value}":
                fields["content"] = f"{key}: {fields['value']}"
        fields, redacted = await self._redactor.redact_fields(fields, key=key)
        vector = None
        if "content" in fields:
            [vector] = await embed([fields["content"]], embedder=self._embedder)
        change = Update(id, fields, expected_version, vector)
        applied = await self._ledger.apply(scope, [change], by=self._redactor.redact_author(by))
        return replace(applied.outcomes[0], redacted=redacted)

    async def _settle_trust(self, scope: Scope, id: str, fields: dict[str, Any], by: Author) -> dict[str, Any]:
        """Return the fields of an update: a quoted instruction lowers the trust, and only a person raises it."""
        if "content" in fields and quotes_instruction(fields["content"]):
            fields = {**fields, "trust": Trust.LOW}
        raised = fields.get("trust") is Trust.HIGH and by.actor is not Actor.PERSON
        if raised and (await self.get(scope, id)).trust is not Trust.HIGH:
            raise Conflict(
                f"`trust` of memory {id} can be raised by a person only, and {by.who} acts as a program; "
                "a person who vouches for it sets the actor to person"
            )
        return fields

    async def forget(
        self, scope: Scope, id: str, *, by: Author, expected_version: int | None = None, sources: bool = True
    ) -> Outcome:
        """Forget a memory; `undo` or `restore` makes it active.

        With `sources`, its repetitions are forgotten in the same change: the turns it was extracted from, memories
        extracted from the same turn only, and the assistant's repetitions.
        """
        changes = [Forget(id, expected_version)]
        if sources:
            record = await self.get(scope, id)
            changes += [Forget(each.id) for each in await find_dependents([record], ledger=self._ledger)]
        applied = await self._ledger.apply(scope, changes, by=self._redactor.redact_author(by))
        self.sessions.resolver.forget(scope.user)
        await retract_turns([each.record for each in applied.outcomes], self.deps)
        return applied.outcomes[0]

    async def restore(self, scope: Scope, id: str, *, by: Author) -> Outcome:
        """Make a forgotten or superseded memory active, or pending if it was in review."""
        record = await self.get(scope, id)
        restored = await restore(scope, record, by=self._redactor.redact_author(by), ledger=self._ledger)
        self.sessions.resolver.forget(scope.user)
        return restored

    async def forget_all(self, scope: Scope, listing: Listing, *, by: Author) -> int:
        """Forget the records of a listing and their repetitions; return the number of records."""
        await self.erasure.import_spilled(scope.user)
        count = 0
        listing = replace(listing, limit=_FORGET_BATCH, cursor=None)
        by = replace(self._redactor.redact_author(by), batch=new_id())
        is_whole = listing.filter == EVERYTHING
        while page := await self._ledger.find(scope, listing):
            related: list[MemoryRecord] = []
            if not is_whole or scope != Scope(scope.user):
                related = await find_dependents(page.records, ledger=self._ledger, whole=is_whole)
            applied = await self._ledger.apply(scope, [Forget(each.id) for each in (*page, *related)], by=by)
            await retract_turns([each.record for each in applied.outcomes], self.deps)
            count += len(page)
        if is_whole:
            await self._forget_evicted(scope, by)
        self.sessions.resolver.forget(scope.user)
        return count

    async def _forget_evicted(self, scope: Scope, by: Author) -> None:
        """Forget the turns that a quota evicted, so that a resent history does not bring them back."""
        is_turn = Where("category", Op.EQ, str(Category.TURN))
        evicted = Listing(filter=is_turn, statuses=(Status.FORGOTTEN,), limit=_FORGET_BATCH)
        async for page in read_pages(self._ledger, scope, evicted):
            await self._ledger.apply(scope, [Forget(each.id) for each in page], by=by)

    async def undo(
        self, scope: Scope, entry_id: int | None = None, *, by: Author, anyones: bool = False, whole: bool = False
    ) -> tuple[Outcome, ...]:
        """Undo a change by its id in history, by default the last action of a person or agent as a whole.

        With `whole`, the entry is undone with all others of its action. Background changes count only with `anyones`.
        A message is undone with the facts extracted from it only.
        """
        outcomes = await undoing.undo(
            scope, entry_id, ledger=self._ledger, by=self._redactor.redact_author(by), any_author=anyones, whole=whole
        )
        self.sessions.resolver.forget(scope.user)
        await retract_turns([each.record for each in outcomes], self.deps)
        try:
            await embed_missing(ledger=self._ledger, embedder=self._embedder, user=scope.user)
        except RecollectError as error:
            # They are found by words until the embedder answers.
            _log.warning("some memories of this user have no vectors for now: %s", error)
        return outcomes

    # Reading

    async def search(self, scope: Scope, request: SearchRequest) -> SearchResult:
        """Return the memories that match a query, best first."""
        is_cacheable = not (request.explain or request.trace) and request.as_of is None and request.vector is None
        cache = self.result_cache if is_cacheable else None
        started_at = now()
        with observe_read("recollect.search") as watching:
            lookup = await cache.look_up(scope, f"search {request!r}") if cache is not None else None
            if lookup is not None and lookup.answer is not None:
                result = SearchResult(lookup.answer.hits, notes=lookup.answer.notes)
            else:
                result = await search.search(scope, request, self._search_ranking, self.search_deps)
                if cache is not None and lookup is not None and not result.notes:
                    cache.store(lookup, CachedAnswer(request.query, result.hits))
            watching.record_search(result)
        self.recall_log.record_search(scope, request.query, result, at=started_at)
        self._access_counter.record(scope, (hit.id for hit in result))
        return result

    async def warm_up_reranker(self, query: str, text: str) -> None:
        """Load the reranker, if there is one; the first search would skip it while it loads."""
        timeout_s = self._recall_config.rerank_timeout_s
        await rerank(query, [text], reranker=self.search_deps.reranker, limit=1, timeout_s=timeout_s)

    async def recall(self, scope: Scope, request: RecallRequest) -> RecallResult:
        """Return the memories that help with a conversation, and its messages with them inserted."""
        llm = MeteredChat(self._chat, scope.user, self._llm_budget) if self._chat is not None else None
        started_at = now()
        with observe_read("recollect.recall") as watching:
            result = await recall.recall(
                scope, request, self._recall_config, self.search_deps, llm=llm, result_cache=self.result_cache
            )
            watching.record_recall(result)
        self.recall_log.record_recall(
            scope, last_question(readable_messages(request.messages)), result, at=started_at
        )
        self._access_counter.record(scope, result.context.used)
        return result

    async def recalls(self, scope: Scope) -> list[LoggedRecall]:
        """Return the last recalls of the user, project or session in this process, newest first."""
        if entries := self.recall_log.list(scope):
            # Another process may have erased what they quote.
            digest = user_digest(scope.user)
            erased = [each.at for each in await self.erasure.list(entries[-1].at) if each.user == digest]
            if erased:
                self.recall_log.forget(scope.user, until=max(erased))
        return self.recall_log.list(scope)

    def format_context(
        self, style: str, hits: Sequence[Hit], *, budget_tokens: int, conversation: Conversation | None = None
    ) -> PromptBlock:
        """Return the text block of hits, and of a conversation's invocations, for a prompt, within the budget."""
        invocations = invocation_lines(conversation) if conversation is not None else ()
        return format_context(style, hits, budget_tokens=budget_tokens, now=now(), invocations=invocations)

    async def embed_queries(self, questions: Sequence[str]) -> list[Vector | None]:
        """Return the vectors of questions for several searches; None for each while the embedder is unavailable."""
        try:
            return list(await self._embedder.embed(questions, role="query"))
        except RecollectError:
            return [None] * len(questions)

    async def check_embedding(self, embedding: Sequence[float] | None) -> Vector | None:
        """Return a caller's vector if it fits the embedding model in use."""
        if embedding is None:
            return None
        return await accept_vector(embedding, self._embedder.model, ledger=self._ledger)

    async def get(self, scope: Scope, id: str, *, as_of: datetime | None = None) -> MemoryRecord:
        """Return one memory of the user; `NotFound` for unknown ids and for those of other users alike."""
        if as_of is not None:
            return await as_of_queries.get_as_of(scope, id, as_of, ledger=self._ledger)
        records = await self._lookup_source.get(scope, [id])
        if not records:
            raise NotFound(f"no memory {id}")
        return records[0]

    async def get_many(self, user: str, ids: Sequence[str]) -> list[MemoryRecord]:
        """Return those memories of a user that exist, whatever their status."""
        return await self._ledger.get(Scope(user), ids) if ids else []

    async def find(self, scope: Scope, listing: Listing, *, as_of: datetime | None = None) -> Page:
        """Return a page of memories that have not expired, or of those valid at `as_of`."""
        if as_of is not None:
            return await as_of_queries.find_as_of(scope, listing, as_of, ledger=self._ledger)
        return await self._lookup_source.find(scope, self._unexpired(listing))

    async def count(self, scope: Scope, listing: Listing) -> int:
        """Return the number of memories of a listing that have not expired."""
        return await self._lookup_source.count(scope, self._unexpired(listing))

    async def facets(self, scope: Scope, listing: Listing) -> Facets:
        """Return the numbers of memories of a listing by their fields."""
        return await self._ledger.facets(scope, exclude_expired(listing))

    async def learned_from(self, scope: Scope, turn_ids: Sequence[str]) -> Mapping[str, list[str]]:
        """Return the ids of the active and superseded memories that were learned from each turn."""
        derived = await self._ledger.derived(scope, turn_ids)
        return {turn_id: [each.id for each in memories] for turn_id, memories in derived.items()}

    def _unexpired(self, listing: Listing) -> Listing:
        return exclude_expired(listing, coarse=self._lookup_source is not self._ledger)

    async def history(
        self,
        scope: Scope,
        *,
        memory_id: str | None = None,
        limit: int = 100,
        before: int | None = None,
        after: int | None = None,
    ) -> list[HistoryEntry]:
        """Return changes of one or all memories, newest first; with `after`, those since then, oldest first."""
        if memory_id is not None:
            await self.get(scope, memory_id)
        return await self._ledger.history(scope, memory_id=memory_id, limit=limit, before=before, after=after)

    async def graph(self, scope: Scope, request: GraphRequest) -> Graph:
        """Return the memories, names, keys and sessions around a name, a key or a memory."""
        return await build_graph(scope, request, ledger=self._ledger)

    async def turns(self, scope: Scope, *, after: int = 0, limit: int = 100) -> list[Turn]:
        return await self._ledger.turns(scope, after=after, limit=limit)

    async def conversation(self, scope: Scope) -> Conversation:
        """Return the state of a session, empty if it does not exist."""
        return await self._ledger.conversation(scope)

    async def users(self) -> list[str]:
        """Return the ids of all users with data."""
        return await self._ledger.users()

    async def revision(self, user: str) -> Revision:
        """Return the counters of a user's changes and erasures; cheap enough for polling."""
        return await self._ledger.revision(user)

    async def epoch(self, user: str) -> int:
        """Return the number of erasures of the user."""
        return (await self._ledger.revision(user)).epoch

    @property
    def responses(self) -> Ledger:
        """The stored objects of OpenAI's Responses and Conversations APIs."""
        return self._ledger

    @property
    def replies(self) -> Ledger:
        """The stored answers to requests with an idempotency key."""
        return self._ledger

    # The store as a whole

    async def reembed(self, progress: Callable[[int], None], *, back: bool = False, drop: bool = False) -> int:
        """Migrate the ledger to the embedding model of the settings; return the number of new vectors."""
        if self.embedding_migration is not None:
            return await self.embedding_migration.migrate(progress, allow_retired=back, drop=drop)
        return await embed_missing(ledger=self._ledger, embedder=self._embedder, progress=progress)

    async def model_states(self) -> list[ModelState]:
        """Return the embedding model in use, earlier ones, and the progress of a migration."""
        return await self._ledger.model_states()

    async def ping(self) -> None:
        """Raise an error if the ledger does not answer."""
        await self._ledger.revision("")

    async def stats(self, user: str | None = None) -> Mapping[str, int]:
        """Return the numbers of records."""
        return await self._ledger.stats(user)

    async def diagnose(self, *, index: str, deep: bool) -> AsyncIterator[CheckResult]:
        """Check the embedder, the jobs, the vectors and the search; with `deep`, every page of the ledger too."""
        yield await check_embedder(self._embedder)
        async for result in check_store(
            self._ledger, self._embedder, user=None, index=index, mend=False, integrity=deep
        ):
            yield result

    async def _on_erased(self, receipt: Receipt) -> Receipt:
        """Clear the caches of an erased user, and erase from the mirror."""
        user = receipt.scope.user
        self.sessions.resolver.forget(user)
        self.jobs.forget_user(user)
        self.recall_log.forget(user)
        if self.mirror is None:
            return receipt
        return replace(receipt, stores=(*receipt.stores, await self.mirror.forget(user)))

    async def stop_work(self) -> None:
        """Stop background work and close the mirror; requests are still answered."""
        await self.jobs.stop()
        if self.mirror is not None:
            await self.mirror.close()

    async def close(self) -> None:
        """Finish running work and close all parts."""
        async with AsyncExitStack() as parts:
            # The last one is closed first, and each of them even if closing another fails.
            deps = self.search_deps
            stores = (self._ledger, self._embedder, deps.index, deps.reranker, self._chat)
            for part in (*stores, self.result_cache, self.change_notifier):
                if part is not None:
                    parts.push_async_callback(part.close)
            if self._late is not None:
                parts.push_async_callback(self._late.close)
            parts.push_async_callback(self.write_quota.close)
            parts.push_async_callback(self._access_counter.close)
            parts.push_async_callback(self._llm_budget.close)
            parts.push_async_callback(self.api_keys.close)
            parts.push_async_callback(self.stop_work)


class UsageService:
    """Record and report LLM calls and tokens."""

    def __init__(self, ledger: Ledger, quota: LlmQuota) -> None:
        self._ledger, self._quota = ledger, quota

    async def refusal(self, user: str) -> str:
        """Return why the LLM may not be called for the user today, or an empty text."""
        return await quota_exceeded_reason(self._ledger, user, self._quota)

    async def record(self, spent: ModelUsage) -> None:
        """Record LLM calls made outside of the service, such as those of an agent."""
        await self._ledger.apply(Scope(spent.user), [], by=Author(spent.step), effects=[spent])

    async def report(
        self, user: str | None = None, *, since: datetime | None = None, by: Sequence[Part] = ("day", "model", "step")
    ) -> list[Usage]:
        """Return calls and tokens of a user or of all users, grouped by the parts."""
        return await self._ledger.usage(user, since=since, by=by)

    async def spent_today(self, user: str | None = None) -> SpentToday:
        """Return calls and tokens since midnight UTC."""
        return await self._ledger.spent_today(user)


class SessionService:
    """The conversations of users. `resolver` matches the messages of a chat to a session."""

    def __init__(self, deps: Deps, learning: LearningConfig, jobs: JobService) -> None:
        self._deps, self._ledger = deps, deps.ledger
        self._learning = learning
        self._jobs = jobs
        self.resolver = SessionResolver(deps.ledger)

    async def begin(self, scope: Scope, *, by: Author) -> Conversation:
        """Return the session, created if it does not exist."""
        return await lifecycle.begin_session(scope, ledger=self._ledger, by=by)

    async def get(self, scope: Scope) -> Conversation:
        """Return an existing session, or raise `NotFound`."""
        return await lifecycle.require_session(scope, ledger=self._ledger)

    async def list(
        self, user: str, *, session: str | None = None, limit: int = 100, after: Conversation | None = None
    ) -> builtins.list[Conversation]:
        """Return the sessions of a user, latest first; `after` is the last of the page before.

        With `session`, those with this id in any project.
        """
        return await self._ledger.conversations(user, session=session, order="newest", limit=limit, after=after)

    async def end(self, scope: Scope) -> Job:
        """Enqueue the end of a session: extraction from its last turns, its episode, promotion."""
        conversation = await self.get(scope)
        jobs = [close_job(scope)]
        if conversation.learned_to < conversation.turn_count and self._learning.by != "off":
            jobs.insert(0, remember.immediate_learning_job(scope))
        *_, job = await self._ledger.enqueue(scope, jobs)
        self._jobs.worker.wake()
        return job

    async def set_summary(self, scope: Scope, summary: str, *, by: Author) -> None:
        """Replace the running summary of a session; the next turns are summarised on top of it."""
        update = ConversationUpdate(scope, {"summary": summary})
        await self._ledger.apply(scope, [], by=by, effects=[update])

    async def record_invocation(self, scope: Scope, invocation: Mapping[str, str]) -> None:
        """Add an agent's report of an invocation to a session, without secrets."""
        redactor = self._learning.redactor
        clean = {name: (await redactor.redact_turn_text(text))[0] for name, text in invocation.items()}
        await lifecycle.record_invocation(scope, clean, self._deps)

    async def end_run(self, scope: Scope, run: RunRecord) -> tuple[Outcome, ...]:
        """Store an agent's run as an episode with goal, steps, outcome and lessons, if it was a task."""
        deps = await deps_within_budget(scope.user, self._deps, self._learning)
        return await lifecycle.end_run(scope, run, deps, self._learning.sessions)
