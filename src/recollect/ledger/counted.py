"""Count what was written once it is on disk: memories that were kept, and what models were asked for them."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.model.change import Applied, Author, ChangeKind
from recollect.model.effect import Effect, ModelUsage
from recollect.model.memory import Category
from recollect.observe.metrics import LLM_CALLS, LLM_TOKENS, SAVED

# Who it is in history that learned something.
_EXTRACTION_AUTHOR = "extraction"
_ADDING_KINDS = (ChangeKind.ADD, ChangeKind.SUPERSEDE)


def ignore_change(user: str) -> None:
    """Where nobody wants to know that something of a user's has changed."""


def record_metrics(applied: Applied, effects: Sequence[Effect], by: Author) -> Applied:
    """The same, counted."""
    saved = sum(
        outcome.changed and outcome.verb in _ADDING_KINDS and outcome.record.category is not Category.TURN
        for outcome in applied.outcomes
    )
    if saved and not applied.replayed:
        SAVED.add("learned" if by.who == _EXTRACTION_AUTHOR else "given", by=saved)
    for effect in effects:
        if isinstance(effect, ModelUsage):
            LLM_CALLS.add(effect.step, effect.model, by=effect.calls)
            LLM_TOKENS.add(effect.step, effect.model, "in", by=effect.tokens_in)
            LLM_TOKENS.add(effect.step, effect.model, "out", by=effect.tokens_out)
    return applied
