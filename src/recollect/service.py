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
from recollect.care import Care
from recollect.errors import NotFound, RecollectError
from recollect.files.files import Files
from recollect.index.engine_index import nudging
from recollect.keyring import Keyring
from recollect.learning_model import LearningModels, with_model_of_chat
from recollect.ledger.model_states import ModelState
from recollect.ledger.protocol import Revision
from recollect.ledger.replies import Replies
from recollect.ledger.responses import Responses
from recollect.model.change import By, Change, Entry, Forget, Once, Outcome, Update
from recollect.model.ids import new_id
from recollect.model.memory import MemoryRecord
from recollect.model.query import EVERYTHING, Listing
from recollect.model.remembered import Remembered
from recollect.model.result import Page, Recalled, SearchResult
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Turn
from recollect.model.uses import Uses
from recollect.model.validity import current
from recollect.models.chat import Chat
from recollect.models.embedding import EmbeddingModel
from recollect.moving import Moving
from recollect.observe.metrics import REMEMBER_SECONDS
from recollect.observe.traces import span
from recollect.read import past
from recollect.read.accesses import Accesses
from recollect.read.again import Again, Found
from recollect.read.counted import watched
from recollect.read.spending import OnAccount, Spending
from recollect.recall import Finders, Habits, Recall, Search
from recollect.remember import Learning, NewMemory
from recollect.shared.news import News
from recollect.upkeep import forgetting, reembed, review
from recollect.upkeep import undo as undoing
from recollect.upkeep.chores import Housekeeping
from recollect.upkeep.worker import Patience
from recollect.write.deps import Deps
from recollect.write.draft import checked_fields
from recollect.write.embed import embed
from recollect.write.room import Room

_log = logging.getLogger("recollect")

# Learning starts a moment later, so that it does not compete with the answer and takes in what is said by then.
_CALM_S = 0.5
# How many memories one transaction forgets at most, so that other writers get their turn.
_FORGET_BATCH = 500


class Service:
    """Memory for many users: what is written, what is found, what happened, what is undone."""

    def __init__(
        self,
        finders: Finders,
        *,
        chat: Chat | None = None,
        habits: Habits | None = None,
        learning: Learning | None = None,
        house: Housekeeping | None = None,
        jobs_at_once: int = 4,
        patience: Patience | None = None,
        most_waiting: int = 1000,
        most_memories: int = 0,
        spill: Path | None = None,
        again: Again | None = None,
        news: News | None = None,
        models: LearningModels | None = None,
    ) -> None:
        self._ledger = finders.ledger
        self.news = news or News()
        self._ledger.on_change = nudging(finders.index, self.news.tell)
        self._again = again
        self._lookups = again.lookups if again is not None and again.lookups is not None else finders.ledger
        self.room = Room(finders.ledger, most_memories)
        self._index = finders.index
        self._embedder = finders.embedder
        self._finders = finders
        self._chat = chat
        self._habits = habits or Habits()
        self._accesses = Accesses(finders.ledger)
        self.keyring = Keyring(finders.ledger)
        self._learning = learning or Learning()
        self._spending = Spending(finders.ledger, self._learning.allowance)
        self._redacting = self._learning.redacting
        self._means = Deps(finders.ledger, finders.index, finders.embedder, chat)
        # Those who are at work with it for long: until they are done it is not closed for another to take its place.
        self.uses = Uses()
        self.moving = Moving(self._means, self._learning, self.room, self.uses)
        self.files = Files(self._means, self._redacting, pace=self.room.take)
        self.care = Care(
            self._means,
            self._learning,
            house,
            jobs_at_once=jobs_at_once,
            patience=patience,
            most_waiting=most_waiting,
            spill=spill,
            again=again,
            models=models,
        )

    @property
    def cache_trouble(self) -> str:
        """Why answers are not given again now though they could be; empty if they are, or need not be."""
        return self._again.trouble if self._again else ""

    @property
    def model(self) -> EmbeddingModel:
        """The model whose vectors are searched."""
        return self._embedder.model

    # Writing

    async def add(self, scope: Scope, new: NewMemory, *, by: By, once: Once | None = None) -> Outcome:
        """Keep a memory as it is given, but for secrets."""
        await self.room.take(scope.user, 1)
        outcome = await remember.add(
            scope,
            new,
            ledger=self._ledger,
            embedder=self._embedder,
            redacting=self._redacting,
            by=by,
            once=once,
        )
        await self.care.keep_within_quotas(scope)
        return outcome

    async def remember(
        self,
        scope: Scope,
        messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        by: By,
        wait_s: float = 0.0,
        mode: str | None = None,
        given_at: datetime | None = None,
        model: str = "",
    ) -> Remembered:
        """Keep what was said; what it says is learned behind, or before this returns if it may take so long.

        Messages that name their `turn_id` can come again and change nothing; `given_at` is when they first came,
        and `model` the one that their chat names.
        """
        await self.care.check_backlog(scope.user)
        await self.room.take(scope.user, 1 if isinstance(messages, str | Mapping) else len(messages))
        with span("recollect.remember") as traced:
            begun = perf_counter()
            learning = with_model_of_chat(self._learning, model, self.care.models)
            appended = await remember.remember(
                scope, messages, self._means, learning, by=by, mode=mode, given_at=given_at
            )
            REMEMBER_SECONDS.note(perf_counter() - begun)
            traced.tell({"turns": len(appended.turns), "jobs": len(appended.jobs)})
        if (job := next(iter(appended.jobs), None)) is None:
            return Remembered(appended.turns, redacted=appended.redacted)
        if wait_s:
            job = await self.care.finished(scope.user, job.id, within_s=wait_s)
            await self.care.keep_within_quotas(scope)
        else:
            self.care.worker.nudge(after_s=_CALM_S)
        return Remembered(appended.turns, job, appended.redacted)

    async def update(
        self, scope: Scope, id: str, fields: Mapping[str, Any], *, by: By, expected_version: int | None = None
    ) -> Outcome:
        """Give fields of a memory new values; new words are embedded anew."""
        fields = checked_fields(fields)
        key = None
        if fields.get("value"):
            record = await self.get(scope, id)
            key = record.key
            # A keyed fact that has no words of its own reads "key: value", and goes on to.
            if "content" not in fields and record.content == f"{key}: {record.value}":
                fields["content"] = f"{key}: {fields['value']}"
        fields, redacted = self._redacting.fields(fields, key=key)
        vector = None
        if "content" in fields:
            [vector] = await embed([fields["content"]], embedder=self._embedder)
        outcome = await self._apply(scope, Update(id, fields, expected_version, vector), by=by)
        return replace(outcome, redacted=redacted)

    async def forget(
        self, scope: Scope, id: str, *, by: By, expected_version: int | None = None, sources: bool = True
    ) -> Outcome:
        """Take a memory out of recall; undo or restore brings it back.

        With it goes whatever would go on saying it: the turns a memory was learned from, what was learned from a turn
        alone, and the assistant's repetitions. One undo brings all of them back.
        """
        changes = [Forget(id, expected_version)]
        if sources:
            record = await self.get(scope, id)
            changes += [Forget(each.id) for each in await forgetting.related([record], ledger=self._ledger)]
        applied = await self._ledger.apply(scope, changes, by=self._redacting.by(by))
        self.care.threads.forget(scope.user)
        return applied.outcomes[0]

    async def restore(self, scope: Scope, id: str, *, by: By) -> Outcome:
        """Make a forgotten or superseded memory active again; one that waited for review waits again."""
        record = await self.get(scope, id)
        restored = await review.restore(scope, record, by=self._redacting.by(by), ledger=self._ledger)
        self.care.threads.forget(scope.user)
        return restored

    async def forget_all(self, scope: Scope, listing: Listing, *, by: By) -> int:
        """Forget everything of a listing with whatever would go on saying it; return how many it had."""
        await self.care.bring_in_spilled(scope.user)
        count = 0
        listing = replace(listing, limit=_FORGET_BATCH, cursor=None)
        by = replace(self._redacting.by(by), batch=new_id())
        is_whole = listing.filter == EVERYTHING
        while page := await self._ledger.find(scope, listing):
            related: list[MemoryRecord] = []
            if not is_whole or scope != Scope(scope.user):
                related = await forgetting.related(page.records, ledger=self._ledger, whole=is_whole)
            await self._ledger.apply(scope, [Forget(each.id) for each in (*page, *related)], by=by)
            count += len(page)
        self.care.threads.forget(scope.user)
        return count

    async def undo(
        self, scope: Scope, entry_id: int | None = None, *, by: By, anyones: bool = False
    ) -> tuple[Outcome, ...]:
        """Take back a change by its number in history; without one, the last thing someone did, whole.

        What was learned or put in order behind is nobody's doing, and counts only with `anyones`. What someone said
        is taken back together with what was learned from it alone.
        """
        outcomes = await undoing.undo(
            scope, entry_id, ledger=self._ledger, by=self._redacting.by(by), anyones=anyones
        )
        self.care.threads.forget(scope.user)
        await self._embed_missing(scope.user)
        return outcomes

    async def _embed_missing(self, user: str) -> None:
        """Words that came back need their vectors back; while the embedder is away they are found by words."""
        try:
            await reembed.embed_missing(ledger=self._ledger, embedder=self._embedder, user=user)
        except RecollectError as error:
            _log.warning("some memories of this user have no vectors for now: %s", error)

    async def _apply(self, scope: Scope, change: Change, *, by: By) -> Outcome:
        return (await self._ledger.apply(scope, [change], by=self._redacting.by(by))).outcomes[0]

    # Reading

    async def search(self, scope: Scope, asked: Search) -> SearchResult:
        """The memories that fit a question, best first."""
        with watched("recollect.search") as watching:
            found = await self._search(scope, asked)
            watching.found(found)
        self._accesses.note(scope, (hit.id for hit in found))
        return found

    async def _search(self, scope: Scope, asked: Search) -> SearchResult:
        # Whoever searches wants the best hits, alike or not; variety is for prompts.
        taste = replace(self._habits.taste, diversity=1.0)
        look = None
        if self._again and not asked.explain and not asked.trace and asked.as_of is None and asked.vector is None:
            look = await self._again.look(scope, f"search {asked!r}")
            if look.found is not None:
                return SearchResult(look.found.hits, notes=look.found.notes)
        found = await recall.search(scope, asked, taste, self._finders)
        if self._again and look is not None and not found.notes:
            self._again.keep(look, Found(asked.query, found.hits))
        return found

    async def recall(self, scope: Scope, asked: Recall) -> Recalled:
        """The memories that help with what is being said, and the messages with them in their place."""
        llm = OnAccount(self._chat, scope.user, self._spending) if self._chat is not None else None
        with watched("recollect.recall") as watching:
            recalled = await recall.recall(scope, asked, self._habits, self._finders, llm=llm, again=self._again)
            watching.recalled(recalled)
        self._accesses.note(scope, recalled.context.used)
        return recalled

    async def get(self, scope: Scope, id: str, *, as_of: datetime | None = None) -> MemoryRecord:
        """One memory of the user, as it was; an unknown id and another user's are the same NotFound."""
        if as_of is not None:
            return await past.get(scope, id, as_of, ledger=self._ledger)
        found = await self._lookups.get(scope, [id])
        if not found:
            raise NotFound(f"no memory {id}")
        return found[0]

    async def find(self, scope: Scope, listing: Listing, *, as_of: datetime | None = None) -> Page:
        """Memories in order, a page at a time: those that have not expired, or what held at a moment, as it was."""
        if as_of is not None:
            return await past.find(scope, listing, as_of, ledger=self._ledger)
        return await self._lookups.find(scope, current(listing, coarse=self._lookups is not self._ledger))

    async def count(self, scope: Scope, listing: Listing) -> int:
        """How many there are."""
        return await self._lookups.count(scope, current(listing, coarse=self._lookups is not self._ledger))

    async def history(
        self,
        scope: Scope,
        *,
        memory_id: str | None = None,
        limit: int = 100,
        before: int | None = None,
        after: int | None = None,
    ) -> list[Entry]:
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
    def responses(self) -> Responses:
        """The Responses and Conversations of OpenAI's API that are kept."""
        return self._ledger

    @property
    def replies(self) -> Replies:
        """The answers to requests that came with a key."""
        return self._ledger

    async def epoch(self, user: str) -> int:
        """What counts how often something of the user was erased."""
        return (await self._ledger.revision(user)).epoch

    # Upkeep

    async def reembed(self, progress: Callable[[int], None], *, back: bool = False, drop: bool = False) -> int:
        """Bring the ledger to the model that the settings name; gives how many vectors were made."""
        if (change := self.care.model_change) is not None:
            return await change.bring_in(progress, back=back, drop=drop)
        return await reembed.embed_missing(ledger=self._ledger, embedder=self._embedder, progress=progress)

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
            models = (self._embedder, self._index, self._finders.reranker, self._chat)
            for part in (self._ledger, *models, self._again, self.news):
                if part is not None:
                    parts.push_async_callback(part.close)
            parts.push_async_callback(self.room.close)
            parts.push_async_callback(self._accesses.close)
            parts.push_async_callback(self._spending.close)
            parts.push_async_callback(self.keyring.close)
            parts.push_async_callback(self.care.close)
