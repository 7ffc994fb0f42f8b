"""Consolidate: join exact duplicates, and have the LLM merge clusters of near memories.

A merged memory cites its sources, is checked before it is written, and supersedes them: undo brings all of them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from recollect.errors import BrokenAnswer, Conflict, InvalidInput, ModelUnavailable, NotFound
from recollect.index.protocol import Index
from recollect.ledger.protocol import Ledger, Revision
from recollect.model.change import Change, ChangeKind, Supersede, Update
from recollect.model.scope import Scope
from recollect.models.chat import Chat
from recollect.models.embedding import Embedder
from recollect.models.structured import Structured, ask_json
from recollect.prompts import prompt
from recollect.prompts.data import new_delimiter
from recollect.upkeep.clusters import (
    MAX_CLUSTER_CHARS,
    ClusterLimits,
    Duplicates,
    MergeCandidate,
    find_clusters,
    find_duplicates,
    load_candidates,
)
from recollect.upkeep.contract import memory_rows, operations_schema
from recollect.upkeep.merged import Merge, join_evidence, merged_record, parse_merge
from recollect.upkeep.report import LlmCostTally, MaintenanceReport, MaintenanceStep, MaintenanceTask, llm_cost
from recollect.upkeep.run import MaintenanceRun, finish
from recollect.write.billed import record_cost_on_error
from recollect.write.embed import embed

SCHEMA = operations_schema("op", "memory", "content")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationLimits:
    """How many memories a run reads, which are near enough, and what the LLM may cost.

    With `after`, only clusters with a memory that changed since are processed.
    """

    max_memories: int = 2000
    clusters: ClusterLimits = field(default_factory=ClusterLimits)
    after: datetime | None = None
    max_calls: int = 20
    max_tokens: int = 1024
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        for name, value, lowest in (
            ("max_memories", self.max_memories, 2),
            ("max_calls", self.max_calls, 0),
            ("clusters.max_size", self.clusters.max_size, 2),
        ):
            if value < lowest:
                raise InvalidInput(f"`{name}` must be at least {lowest}, got {value}")


@dataclass(frozen=True, slots=True)
class ConsolidationDeps:
    """The stores and models that consolidation uses; without a chat model only duplicates are joined."""

    ledger: Ledger
    index: Index
    embedder: Embedder
    chat: Chat | None = None


async def consolidate(
    scope: Scope, *, deps: ConsolidationDeps, run: MaintenanceRun, limits: ConsolidationLimits | None = None
) -> MaintenanceReport:
    """Join duplicates, merge clusters, and report what was changed and what was left alone."""
    limits = limits or ConsolidationLimits()
    work = _Consolidation(scope, deps, run, limits, await deps.ledger.revision(scope.user))
    groups, more = await load_candidates(
        scope, ledger=deps.ledger, index=deps.index, max_memories=limits.max_memories, after=limits.after
    )
    joined: set[str] = set()
    for group in groups:
        for each in await find_duplicates(group):
            joined |= {one.record.id for one in (each.keeper, *each.repeats)}
            await work.join(each)
    async with record_cost_on_error(deps.ledger, scope, work.costs.unrecorded, by=run.by):
        if (chat := deps.chat) is not None:
            for group in groups:
                for cluster in await find_clusters(group, limits.clusters, without=joined):
                    await work.merge(cluster, chat)
        await finish(scope, run, deps.ledger, *work.costs.unrecorded())
    return MaintenanceReport(
        chore=MaintenanceTask.CONSOLIDATE,
        user=scope.user,
        dry_run=run.dry_run,
        batch=run.batch(bool(work.steps)),
        steps=tuple(work.steps),
        left=tuple(work.left),
        looked_at=sum(map(len, groups)),
        more=more or work.skipped,
        calls=work.costs.calls,
        tokens_in=work.costs.tokens_in,
        tokens_out=work.costs.tokens_out,
    )


class _Consolidation:
    """Applies one transaction for each merge, and records what was done and what it cost."""

    def __init__(
        self, scope: Scope, deps: ConsolidationDeps, run: MaintenanceRun, limits: ConsolidationLimits, since: Revision
    ) -> None:
        self.steps: list[MaintenanceStep] = []
        self.left: list[str] = []
        self.costs = LlmCostTally()
        self.skipped = False
        self._scope = scope
        self._deps = deps
        self._run = run
        self._limits = limits
        self._since = since
        self._calls = 0
        self._is_unavailable = False

    async def join(self, duplicates: Duplicates) -> None:
        """Supersede the duplicates of a memory, and join their evidence."""
        if self._is_full():
            return
        keeper, repeats = duplicates.keeper.record, [each.record for each in duplicates.repeats]
        every = [*sorted(repeats, key=lambda each: each.created_at), keeper]
        sources = [*keeper.detail.get("sources", ()), *(each.id for each in repeats)]
        fields = {
            "importance": max(each.importance for each in every),
            "confidence": max(each.confidence for each in every),
            "evidence": join_evidence(every),
            "detail": {**keeper.detail, "sources": list(dict.fromkeys(sources))},
        }
        changes: list[Change] = [Supersede(each.id, keeper, each.version) for each in repeats]
        changes.append(Update(keeper.id, fields, keeper.version))
        step = MaintenanceStep(
            verb=ChangeKind.UPDATE,
            id=keeper.id,
            content=keeper.content,
            why="they say the same",
            sources=tuple(each.id for each in repeats),
        )
        await self._write(changes, step)

    async def merge(self, cluster: Sequence[MergeCandidate], chat: Chat) -> None:
        """Ask the LLM how to merge a cluster, and supersede the sources by the merged memory."""
        if self._is_full() or self._is_unavailable or self._calls >= self._limits.max_calls:
            self.skipped = True
            return
        self._calls += 1
        try:
            answer, digest = await self._ask(cluster, chat)
        except BrokenAnswer as error:
            self.costs.add(
                llm_cost(self._scope.user, MaintenanceTask.CONSOLIDATE, chat.model, error, at=self._run.at)
            )
            self._skip(cluster, str(error))
            return
        except ModelUnavailable as error:
            if self._calls == 1 and not self.steps:
                raise
            self._is_unavailable = self.skipped = True
            self._skip(cluster, str(error))
            return
        self.costs.add(llm_cost(self._scope.user, MaintenanceTask.CONSOLIDATE, chat.model, answer, at=self._run.at))
        merge = answer.value
        if merge is None:
            self._skip(cluster, "the model keeps them apart")
            return
        record = merged_record(merge, cluster, at=self._run.at, digest=digest)
        [vector] = await embed([record.content], embedder=self._deps.embedder)
        sources = [cluster[number].record for number in merge.members]
        changes = [Supersede(each.id, record, each.version, vector) for each in sources]
        step = MaintenanceStep(
            verb=ChangeKind.ADD,
            id=record.id,
            content=record.content,
            why="they speak of the same",
            sources=tuple(each.id for each in sources),
        )
        await self._write(changes, step)

    async def _ask(self, cluster: Sequence[MergeCandidate], chat: Chat) -> tuple[Structured[Merge | None], str]:
        template = prompt("consolidate")
        rows = memory_rows([each.record for each in cluster], MAX_CLUSTER_CHARS)
        answer: Structured[Merge | None] = await ask_json(
            chat,
            [{"role": "user", "content": template.fill(fence=new_delimiter(), memories=rows)}],
            schema=SCHEMA,
            max_tokens=self._limits.max_tokens,
            timeout_s=self._limits.timeout_s,
            check=lambda value: parse_merge(value, cluster),
        )
        return answer, template.digest

    async def _write(self, changes: Sequence[Change], step: MaintenanceStep) -> None:
        if not self._run.dry_run:
            try:
                await self._deps.ledger.apply(
                    self._scope,
                    changes,
                    by=self._run.author_for(f"consolidated: {step.why}"),
                    effects=self.costs.unrecorded(),
                    since=self._since,
                )
            except (Conflict, NotFound) as error:
                self.left.append(f"{', '.join(step.sources)}: {error}")
                return
            self.costs.mark_recorded()
        self.steps.append(step)
        self._run.progress(len(self.steps))

    def _skip(self, cluster: Sequence[MergeCandidate], why: str) -> None:
        self.left.append(f"{', '.join(each.record.id for each in cluster)}: {why}")

    def _is_full(self) -> bool:
        self.skipped = self.skipped or len(self.steps) >= self._run.max_changes
        return len(self.steps) >= self._run.max_changes
