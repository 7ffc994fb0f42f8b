"""Count what was written once it is on disk: memories that were kept, and what models were asked for them."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.model.change import Applied, By, Verb
from recollect.model.effect import Effect, Spent
from recollect.model.memory import Category
from recollect.observe.metrics import LLM_CALLS, LLM_TOKENS, SAVED

# Who it is in history that learned something.
_LEARNED_BY = "extraction"
_NEW = (Verb.ADD, Verb.SUPERSEDE)


def unheard(user: str) -> None:
    """Where nobody wants to know that something of a user's has changed."""


def counted(applied: Applied, effects: Sequence[Effect], by: By) -> Applied:
    """The same, counted."""
    saved = sum(
        outcome.changed and outcome.verb in _NEW and outcome.record.category is not Category.TURN
        for outcome in applied.outcomes
    )
    if saved and not applied.replayed:
        SAVED.add("learned" if by.who == _LEARNED_BY else "given", by=saved)
    for effect in effects:
        if isinstance(effect, Spent):
            LLM_CALLS.add(effect.step, effect.model, by=effect.calls)
            LLM_TOKENS.add(effect.step, effect.model, "in", by=effect.tokens_in)
            LLM_TOKENS.add(effect.step, effect.model, "out", by=effect.tokens_out)
    return applied
