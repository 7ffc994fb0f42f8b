"""Turn a batch of turns into changes for the ledger; `remember.py` applies them.

1. `screen.py` cleans the turns and stops at small talk.
2. With an LLM, `related.py` finds the stored memories that the turns may change, `extract.py` asks for operations on
   them in one call, and `check.py` checks the answer. Without one, `select.py` selects statements of the user, and
   in tasks the outcomes that an assistant reports.
3. `redact.py` removes secrets from the facts.
4. `reconcile.py` compares the facts with the stored memories: add, supersede, end, or add evidence.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field, replace
from typing import Any

from recollect.aio.slices import run_off_loop
from recollect.deps import Deps
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.codec import unpack_vector
from recollect.ledger.ledger import quota_exceeded_reason
from recollect.model.change import Add, Author, Change, ModelUsage, Update, Vector
from recollect.model.query import matches
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Role, Turn
from recollect.model.usage import LlmQuota
from recollect.observability.tracing import span
from recollect.write.ask_llm import record_cost_on_error
from recollect.write.batch import Batch
from recollect.write.embed import embed, embed_changes
from recollect.write.extract import Extraction, ExtractionLimits, extract, extract_with_small_model
from recollect.write.reconcile import ReconcileLimits, ReconcileResult, cosines, merge_added, reconcile
from recollect.write.redact import drop_secret_facts, redact
from recollect.write.related import STATEMENTS, find_nearest_and_keyed, find_related
from recollect.write.screen import screen
from recollect.write.select import contain_outcomes, may_contain_facts, select_facts

# The author in history of memories that were extracted.
EXTRACTION_AUTHOR = "extraction"


@frozen_dataclass(kw_only=True)
class ExtractionConfig:
    """How to extract facts: `by` is "llm", "selector", or "off".

    A `small` LLM only adds to the facts of the selector. The LLM is not asked if the selector's best probability for
    a statement is below `ask_threshold`.
    """

    by: str = "selector"
    small: bool = False
    mode: str = "chat"
    ask_threshold: float = 0.06
    limits: ExtractionLimits = field(default_factory=ExtractionLimits)
    reconciling: ReconcileLimits = field(default_factory=ReconcileLimits)
    allowance: LlmQuota = field(default_factory=LlmQuota)

    @property
    def is_task(self) -> bool:
        """Whether the conversation is about work: the results are in the answers of the assistant."""
        return self.mode == "task"


@frozen_dataclass
class ExtractedChanges:
    """The changes to apply for a batch, and the LLM usage to record with them."""

    changes: tuple[Change, ...] = ()
    usage: tuple[ModelUsage, ...] = ()


async def extract_changes(
    scope: Scope, batch: Batch, deps: Deps, config: ExtractionConfig
) -> tuple[ExtractedChanges, dict[str, Any]]:
    """Return the changes for a batch of turns, and a report, which becomes the result of the job."""
    batch = batch.shortened()
    screened = await run_off_loop(lambda: screen(batch.turns, before=batch.context), chars=batch.chars)
    reason = screened.reason if batch.turns else "all turns were processed before"
    report: dict[str, Any] = {"turns": len(batch.turns), "reason": reason}
    if not screened.has_content and not await _has_outcomes(screened.turns, batch.chars, config):
        return ExtractedChanges(), report
    context = await run_off_loop(lambda: screen(batch.context), chars=batch.chars)
    batch = replace(batch, turns=tuple(screened.turns), context=tuple(context.turns))
    with span("recollect.extract") as traced:
        batch, extraction, method = await _extract(scope, batch, deps, config)
        usage = extraction.cost.usage(scope.user, "extract")
        if extraction.error is not None:
            if usage:
                await deps.ledger.apply(scope, [], by=Author(EXTRACTION_AUTHOR), effects=usage)
            raise extraction.error
        facts, secrets = drop_secret_facts(extraction.facts)
        facts = [replace(fact, metadata=batch.shared_metadata(fact.evidence)) for fact in facts]
        extraction = replace(extraction, facts=tuple(facts), rejected=(*extraction.rejected, *secrets))
        traced.set_attributes({"turns": len(batch.turns), "learned": len(facts), "llm_calls": extraction.cost.calls})
    async with record_cost_on_error(deps.ledger, scope, lambda: usage, by=Author(EXTRACTION_AUTHOR)):
        with span("recollect.reconcile") as traced:
            result = await _reconcile(scope, batch, extraction, deps, config)
            traced.set_attributes({"changes": len(result.changes)})
    unverified = [f"{', '.join(each.doubts)}: {each.content[:100]}" for each in facts if each.doubts]
    reasons = {
        "dropped": extraction.rejected,
        "unverified": unverified,
        "decisions": [each.description for each in result.decisions],
    }
    # The reasons quote the model, so secrets are removed before they are stored.
    report |= {"by": method, **{name: [redact(each).text for each in texts] for name, texts in reasons.items()}}
    return ExtractedChanges(result.changes, tuple(usage)), report


async def _extract(scope: Scope, batch: Batch, deps: Deps, config: ExtractionConfig) -> tuple[Batch, Extraction, str]:
    """Return the batch with its related memories, the facts, and the method that found them."""
    method = config.by
    if method == "llm" and (quota_reason := await quota_exceeded_reason(deps.ledger, scope.user, config.allowance)):
        method = f"selector, since {quota_reason}"
    if deps.chat is None or method != "llm":
        return batch, await _select(batch, config), method
    # The selector was trained on statements about the user, so it cannot judge documents and tasks.
    may_skip_llm = config.ask_threshold > 0 and config.mode in ("chat", "profile")
    if may_skip_llm and not await run_off_loop(
        lambda: may_contain_facts(batch.turns, threshold=config.ask_threshold), chars=batch.chars
    ):
        reason = "no statement is worth remembering; the LLM was not asked"
        return batch, Extraction(rejected=(reason,)), method
    if config.small:
        selected = await _select(batch, config)
        extraction = await extract_with_small_model(
            batch.turns, selected, chat=deps.chat, mode=config.mode, limits=config.limits
        )
        return batch, extraction, "selector and a small llm"
    batch = replace(batch, memories=tuple(await find_related(scope, batch.turns, batch.context, deps)))
    extraction = await extract(batch, chat=deps.chat, mode=config.mode, now=now(), limits=config.limits)
    return batch, extraction, method


async def _has_outcomes(turns: Sequence[Turn], chars: int, config: ExtractionConfig) -> bool:
    """Return whether an assistant reports the outcome of work: a task goes on while the user says little."""
    return (
        config.is_task
        and not config.limits.user_only
        and await run_off_loop(lambda: contain_outcomes(turns), chars=chars)
    )


async def _select(batch: Batch, config: ExtractionConfig) -> Extraction:
    """Return the facts that the built-in selector finds and the limits admit."""
    limits = config.limits
    turns = [turn for turn in batch.turns if turn.role is Role.USER or not limits.user_only]
    selected = await run_off_loop(lambda: select_facts(turns, task=config.is_task), chars=batch.chars)
    facts = [
        fact
        for fact in selected
        if fact.importance >= limits.min_importance and fact.confidence >= limits.min_confidence
    ]
    return Extraction(facts=tuple(facts))


async def _reconcile(
    scope: Scope, batch: Batch, extraction: Extraction, deps: Deps, config: ExtractionConfig
) -> ReconcileResult:
    """Return the changes of the facts to the stored memories, with vectors."""
    facts = extraction.facts
    if not facts:
        return ReconcileResult()
    vectors = await embed([fact.content for fact in facts], embedder=deps.embedder)
    # The memories that the facts may repeat or replace: those shown to the LLM, the nearest, and holders of keys.
    keys = {fact.key for fact in facts if fact.key}
    candidates = {record.id: record for record in batch.memories}
    candidates |= {record.id: record for record in await find_nearest_and_keyed(scope, vectors, keys, deps)}
    result = reconcile(
        scope,
        facts,
        list(candidates.values()),
        limits=config.reconciling,
        similarity=await _cosines(scope, [fact.content for fact in facts], vectors, candidates, deps),
        prompt_digest=extraction.prompt_digest or None,
    )
    return replace(result, changes=tuple(await embed_changes(result.changes, embedder=deps.embedder)))


async def merge_with_similar(new: Add, deps: Deps, limits: ReconcileLimits) -> Add | Update:
    """Return the update of a memory at the same level that is the same by the limits, or the addition unchanged."""
    record, scope = new.record, new.record.scope
    if not limits.merges_similar or record.key is not None or not matches(record, STATEMENTS):
        return new
    nearest = await find_nearest_and_keyed(scope, [new.vector], (), deps)
    candidates = {each.id: each for each in nearest if each.visibility_key == record.visibility_key}
    cosine = await _cosines(scope, [record.content], [new.vector], candidates, deps)
    return merge_added(new, list(candidates.values()), limits, cosine)


async def _cosines(
    scope: Scope, contents: Sequence[str], vectors: Sequence[Vector | None], ids: Collection[str], deps: Deps
) -> dict[tuple[str, str], float]:
    stored = await deps.ledger.vectors(scope.user, list(ids), model=deps.embedder.model)
    unpacked = {id: unpack_vector(data, deps.embedder.model) for id, data in stored.items()}
    return cosines(contents, vectors, unpacked)
