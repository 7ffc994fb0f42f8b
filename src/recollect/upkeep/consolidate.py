"""Consolidate: related memories become one that cites them; written and verified before the old ones step aside.

What says the same is joined without a model. What speaks of the same thing is put into one statement by the model,
and only if that lost and made up nothing. The old ones are superseded, not removed: undo brings all of them back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from recollect.errors import BrokenAnswer, Conflict, InvalidInput, ModelUnavailable, NotFound
from recollect.index.protocol import Index
from recollect.ledger.protocol import Ledger, Revision
from recollect.model.change import Change, Supersede, Update, Verb
from recollect.model.scope import Scope
from recollect.models.chat import Chat
from recollect.models.embedding import Embedder
from recollect.models.structured import Structured, ask_json
from recollect.prompts import prompt
from recollect.prompts.data import new_fence
from recollect.upkeep.clusters import Candidate, Likings, Repeated, candidates, related, repeated
from recollect.upkeep.merged import Merge, joined_evidence, merged_record, read_merge
from recollect.upkeep.report import Bill, Chore, Report, Step, spent_by
from recollect.upkeep.run import Run, finish
from recollect.write.billed import billed
from recollect.write.embed import embed

SCHEMA: Mapping[str, Any] = {
    "title": "merged",
    "type": "object",
    "properties": {
        "members": {"type": "array", "items": {"type": "integer"}},
        "statement": {"type": "string"},
        "outdated": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["members", "statement", "outdated"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """How much is looked at, what is near enough, and what asking the model may cost.

    With `after`, only what was changed since is looked at, together with whatever is near it.
    """

    look: int = 2000
    likings: Likings = field(default_factory=Likings)
    after: datetime | None = None
    calls: int = 20
    max_tokens: int = 1024
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.look < 2 or self.calls < 0 or self.likings.most < 2:
            raise InvalidInput("consolidating looks at two memories at least, and asks no model less than never")


@dataclass(frozen=True, slots=True)
class Parts:
    """What consolidating works with; without a chat model only what says the same is joined."""

    ledger: Ledger
    index: Index
    embedder: Embedder
    chat: Chat | None = None


async def consolidate(scope: Scope, *, parts: Parts, run: Run, merging: Merging | None = None) -> Report:
    """Make one of memories that say the same or speak of the same; gives what became of what, and what was left."""
    merging = merging or Merging()
    work = _Work(scope, parts, run, merging, await parts.ledger.revision(scope.user))
    groups, more = await candidates(
        scope, ledger=parts.ledger, index=parts.index, look=merging.look, after=merging.after
    )
    gone: set[str] = set()
    for group in groups:
        for each in await repeated(group, merging.likings):
            gone |= {one.record.id for one in (each.keeper, *each.repeats)}
            await work.join(each)
    async with billed(parts.ledger, scope, work.bill.unpaid, by=run.by):
        if (chat := parts.chat) is not None:
            for group in groups:
                for cluster in await related(group, merging.likings, without=gone):
                    await work.merge(cluster, chat)
        await finish(scope, run, parts.ledger, *work.bill.unpaid())
    return Report(
        chore=Chore.CONSOLIDATE,
        user=scope.user,
        dry_run=run.dry_run,
        batch=run.batch(bool(work.steps)),
        steps=tuple(work.steps),
        left=tuple(work.left),
        looked_at=sum(map(len, groups)),
        more=more or work.skipped,
        calls=work.bill.calls,
        tokens_in=work.bill.tokens_in,
        tokens_out=work.bill.tokens_out,
    )


class _Work:
    """Makes one of many, one transaction each, and keeps account."""

    def __init__(self, scope: Scope, parts: Parts, run: Run, merging: Merging, since: Revision) -> None:
        self.steps: list[Step] = []
        self.left: list[str] = []
        self.bill = Bill()
        self.skipped = False
        self._scope = scope
        self._parts = parts
        self._run = run
        self._merging = merging
        self._since = since
        self._asked = 0
        self._away = False

    async def join(self, found: Repeated) -> None:
        """Let the better wording stand for all that say the same."""
        if self._is_full():
            return
        keeper, repeats = found.keeper.record, [each.record for each in found.repeats]
        every = [*sorted(repeats, key=lambda each: each.created_at), keeper]
        sources = [*keeper.detail.get("sources", ()), *(each.id for each in repeats)]
        fields = {
            "importance": max(each.importance for each in every),
            "confidence": max(each.confidence for each in every),
            "evidence": joined_evidence(every),
            "detail": {**keeper.detail, "sources": list(dict.fromkeys(sources))},
        }
        changes: list[Change] = [Supersede(each.id, keeper, each.version) for each in repeats]
        changes.append(Update(keeper.id, fields, keeper.version))
        step = Step(
            verb=Verb.UPDATE,
            id=keeper.id,
            content=keeper.content,
            why="they say the same",
            sources=tuple(each.id for each in repeats),
        )
        await self._write(changes, step)

    async def merge(self, cluster: Sequence[Candidate], chat: Chat) -> None:
        """Have the model make one statement of a cluster, and let it stand for what it was made of."""
        if self._is_full() or self._away or self._asked >= self._merging.calls:
            self.skipped = True
            return
        self._asked += 1
        try:
            asked, digest = await self._ask(cluster, chat)
        except BrokenAnswer as error:
            self.bill.add(spent_by(self._scope.user, Chore.CONSOLIDATE, chat.model, error, at=self._run.at))
            self._leave(cluster, str(error))
            return
        except ModelUnavailable as error:
            if self._asked == 1 and not self.steps:
                raise
            self._away = self.skipped = True
            self._leave(cluster, str(error))
            return
        self.bill.add(spent_by(self._scope.user, Chore.CONSOLIDATE, chat.model, asked, at=self._run.at))
        merge = asked.value
        if not merge.members:
            self._leave(cluster, "the model keeps them apart")
            return
        record = merged_record(merge, cluster, at=self._run.at, digest=digest)
        [vector] = await embed([record.content], embedder=self._parts.embedder)
        sources = [cluster[number].record for number in merge.members]
        changes = [Supersede(each.id, record, each.version, vector) for each in sources]
        step = Step(
            verb=Verb.ADD,
            id=record.id,
            content=record.content,
            why="they speak of the same",
            sources=tuple(each.id for each in sources),
        )
        await self._write(changes, step)

    async def _ask(self, cluster: Sequence[Candidate], chat: Chat) -> tuple[Structured[Merge], str]:
        lines = [
            json.dumps({"number": at, "says": each.record.content}, ensure_ascii=False)
            for at, each in enumerate(cluster)
        ]
        # A fresh secret each time, and one line of JSON a statement: nothing that was said can end the fence.
        fence = new_fence()
        said = prompt("consolidate")
        answer = await ask_json(
            chat,
            [{"role": "user", "content": said.fill(fence=fence, statements="\n".join(lines))}],
            schema=SCHEMA,
            max_tokens=self._merging.max_tokens,
            timeout_s=self._merging.timeout_s,
            check=lambda told: read_merge(told, cluster),
        )
        return answer, said.digest

    async def _write(self, changes: Sequence[Change], step: Step) -> None:
        if not self._run.dry_run:
            try:
                await self._parts.ledger.apply(
                    self._scope,
                    changes,
                    by=self._run.by_for(f"consolidated: {step.why}"),
                    effects=self.bill.unpaid(),
                    since=self._since,
                )
            except (Conflict, NotFound) as error:
                self.left.append(f"{', '.join(step.sources)}: {error}")
                return
            self.bill.paid()
        self.steps.append(step)
        self._run.progress(len(self.steps))

    def _leave(self, cluster: Sequence[Candidate], why: str) -> None:
        self.left.append(f"{', '.join(each.record.id for each in cluster)}: {why}")

    def _is_full(self) -> bool:
        self.skipped = self.skipped or len(self.steps) >= self._run.most
        return len(self.steps) >= self._run.most
