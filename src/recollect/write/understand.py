"""Understand some turns: from what was said to the changes that it comes to, beside what is known.

screen -> extract, by an LLM or by rules -> neighbours -> resolve -> reconcile; nothing is written here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from recollect.errors import BrokenAnswer
from recollect.ledger.allowance import refusal
from recollect.model.change import By, Change
from recollect.model.effect import Spent
from recollect.model.learned import BY_RULES_SINCE, Learned
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Turn
from recollect.model.usage import Allowance
from recollect.observe.traces import span
from recollect.write.billed import billed
from recollect.write.embed import with_vectors
from recollect.write.extraction.extract import Extracted, Limits, extract
from recollect.write.extraction.small import extract_small
from recollect.write.means import Means
from recollect.write.rules.learn import find_by_rules
from recollect.write.screening.imperatives import review_reason
from recollect.write.screening.redact import redact
from recollect.write.screening.screen import screen
from recollect.write.screening.trust import said_by_user
from recollect.write.screening.written import without_secrets
from recollect.write.settling.neighbours import neighbours
from recollect.write.settling.reconcile import reconcile
from recollect.write.settling.resolution import Limits as Settling
from recollect.write.settling.resolve import Resolution, resolve
from recollect.write.speakers import by_speaker

_log = logging.getLogger("recollect")

# Who it is in history that learned something.
BY = "extraction"
_TOLD = re.compile(r"turns (\d+) to (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Understanding:
    """How what was said is understood; `by` is "llm", "rules", or "off" for not at all.

    Of a `small` LLM less is expected: rules learn beside it, and it decides nothing.
    """

    by: str = "rules"
    small: bool = False
    mode: str = "chat"
    limits: Limits = field(default_factory=Limits)
    settling: Settling = field(default_factory=Settling)
    allowance: Allowance = field(default_factory=Allowance)


@dataclass(frozen=True, slots=True)
class Batch:
    """Turns to learn from, what was said before them, and whether that was tried before."""

    before: tuple[Turn, ...]
    turns: tuple[Turn, ...]
    again: bool = False

    @property
    def told(self) -> str:
        """Which turns they are."""
        return f"turns {self.turns[0].position} to {self.turns[-1].position}" if self.turns else ""


def turns_told(told: str) -> range | None:
    """Which turns a batch told of, by the position each has in its session."""
    found = _TOLD.fullmatch(told)
    return range(int(found[1]), int(found[2]) + 1) if found else None


@dataclass(frozen=True, slots=True)
class Understood:
    """What some turns come to: changes to make, and what asking cost."""

    changes: tuple[Change, ...] = ()
    spent: tuple[Spent, ...] = ()


async def understand(
    scope: Scope, batch: Batch, means: Means, habits: Understanding
) -> tuple[Understood, dict[str, Any]]:
    """What the turns come to beside what is known, and how that was found, as the job's result tells it."""
    screened = screen(batch.turns, before=batch.before)
    reason = screened.reason if batch.turns else "all that was said had been learned from before"
    told: dict[str, Any] = {"turns": len(batch.turns), "reason": reason}
    if not screened.worth:
        return Understood(), told
    with span("recollect.extract") as traced:
        found, how = await _extracted(scope, screened.turns, screen(batch.before).turns, means, habits)
        kept, secrets = without_secrets(found.learned)
        found = replace(found, learned=tuple(kept), dropped=(*found.dropped, *secrets))
        traced.tell({"turns": len(screened.turns), "learned": len(found.learned), "llm_calls": found.calls})
    async with billed(means.ledger, scope, lambda: _spent(scope, "extract", found), by=By(BY)):
        with span("recollect.settle") as traced:
            settled = await _settled(scope, found, screened.turns, means, habits)
            traced.tell({"changes": len(settled.changes), "llm_calls": settled.calls})
    told |= {"by": how, "dropped": _told(found.dropped), "decisions": _told(settled.reasons)}
    if found.ungrounded:
        told["ungrounded"] = found.ungrounded
    spent = (*_spent(scope, "extract", found), *_spent(scope, "reconcile", settled))
    return Understood(settled.changes, spent), told


def _told(reasons: Sequence[str]) -> list[str]:
    """Reasons as they may be kept: they quote what a model wrote, whatever that was."""
    return [redact(reason).text for reason in reasons]


async def _extracted(
    scope: Scope, turns: Sequence[Turn], before: Sequence[Turn], means: Means, habits: Understanding
) -> tuple[Extracted, str]:
    """What the turns say, and who found it: the LLM, or rules where there is none or its budget is used up."""
    how = habits.by
    if how == "llm" and (spent := await refusal(means.ledger, scope.user, habits.allowance)):
        how = f"{BY_RULES_SINCE}{spent}"
    if means.chat is None or how != "llm":
        return _stated(turns, before, habits), how
    if habits.small:
        stated = _stated(turns, before, habits)
        found = await extract_small(turns, stated, chat=means.chat, mode=habits.mode, limits=habits.limits)
        return replace(found, learned=tuple(by_speaker(found.learned, [*before, *turns]))), "rules and a small llm"
    try:
        found = await extract(
            turns, chat=means.chat, context=before, mode=habits.mode, now=now(), limits=habits.limits
        )
    except BrokenAnswer as error:
        # It cost something all the same.
        await means.ledger.apply(scope, [], by=By(BY), effects=[_spent_on(scope, "extract", means.chat.model, error)])
        raise
    if found.ungrounded:
        # What was said, or claimed, is not for the log.
        _log.info("%d of what the llm wanted to learn was dropped: nobody said it", found.ungrounded)
    if found.ungrounded and not found.learned:
        # Something was said, and the model got it wrong: what rules find in it is not to be lost as well.
        stated = _stated(turns, before, habits)
        found = replace(found, learned=stated.learned, dropped=(*found.dropped, *stated.dropped))
        return found, "rules, since nobody said what the llm learned"
    return found, how


def _stated(turns: Sequence[Turn], before: Sequence[Turn], habits: Understanding) -> Extracted:
    """What rules find in the turns."""
    said = [*before, *turns]
    stated = find_by_rules(said, now=now())
    learned = [each for each in by_speaker(stated.learned, said) if _is_of(turns, each)]
    return Extracted(learned=tuple(_worth(learned, habits.limits)), dropped=tuple(stated.dropped))


def _is_of(turns: Sequence[Turn], learned: Learned) -> bool:
    """Whether it was said in these turns, and not in those that were only read to understand them."""
    ids = {turn.id for turn in turns}
    return any(id in ids for id in learned.evidence)


def _worth(learned: Sequence[Learned], limits: Limits) -> list[Learned]:
    return [
        each
        for each in learned
        if each.importance >= limits.min_importance and each.confidence >= limits.min_confidence
    ]


async def _settled(
    scope: Scope, found: Extracted, turns: Sequence[Turn], means: Means, habits: Understanding
) -> Resolution:
    """The changes that what was found comes to, beside what is known."""
    said = {turn.id: turn.said_at for turn in turns}
    learned = [
        replace(
            each,
            review=review_reason(each, said_by_user(each, turns)),
            said_at=max((said[id] for id in each.evidence if id in said), default=None),
        )
        for each in found.learned
    ]
    near = await neighbours(scope, learned, ledger=means.ledger, index=means.index, embedder=means.embedder)
    digest = found.prompt_digest or None
    settled = resolve(scope, learned, near, limits=habits.settling, prompt_digest=digest)
    chat = means.chat if found.calls and not habits.small else None
    settled = await reconcile(scope, settled, chat=chat, limits=habits.settling, prompt_digest=digest)
    return replace(settled, changes=tuple(await with_vectors(settled.changes, embedder=means.embedder)))


def _spent(scope: Scope, step: str, cost: Extracted | Resolution) -> list[Spent]:
    """What a step asked of a model, if it did."""
    return [_spent_on(scope, step, cost.model, cost)] if cost.calls else []


def _spent_on(scope: Scope, step: str, model: str, cost: Extracted | Resolution | BrokenAnswer) -> Spent:
    return Spent(
        user=scope.user,
        step=step,
        model=model,
        calls=cost.calls,
        tokens_in=cost.tokens_in,
        tokens_out=cost.tokens_out,
        at=now(),
    )
