"""What the blend is trained on: conversations with their questions, and the same cut small."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from evals.conversation import DatasetConversation, DatasetQuestion
from evals.run import EVERYDAY

# What people say that no memory answers.
IDLE = "idle"
_STRANGERS = 60
_SMALL_TURNS = (6, 15, 40, 120)
_SMALL_QUESTIONS, _SMALL_STRANGERS = 6, 3


@dataclass(frozen=True, slots=True)
class Material:
    """A conversation to remember with what is asked of it, the set it is from, and whether it was cut small."""

    source: str
    conversation: DatasetConversation
    small: bool = False


def materials(source: str, conversations: Sequence[DatasetConversation], *, seed: int = 7) -> Iterator[Material]:
    """Each conversation whole, with questions of other people added; and windows of it as if they were all."""
    chance = random.Random(seed)
    for each in conversations:
        own = tuple(question for question in each.questions if question.headline and question.gold)
        rest = [
            replace(question, gold=())
            for other in conversations
            if not other.speakers & each.speakers
            for question in other.questions
            if question.headline
        ]
        few = len(own) <= 5
        strangers = chance.sample(rest, min(3 if few else _STRANGERS, len(rest)))
        idle = [_idle(text) for text in chance.sample(EVERYDAY, 2 if few else len(EVERYDAY))]
        yield Material(source, replace(each, questions=(*own, *strangers, *idle)))
        # A window of a conversation with few questions hardly ever holds an answer.
        for size in () if few else _SMALL_TURNS * 2:
            yield Material(source, _window(each, own, size, chance), small=True)


def _idle(text: str) -> DatasetQuestion:
    return DatasetQuestion(id=text, text=text, category=IDLE, gold=())


def _window(
    whole: DatasetConversation, own: Sequence[DatasetQuestion], size: int, chance: random.Random
) -> DatasetConversation:
    start = chance.randrange(max(1, len(whole.turns) - size))
    turns = whole.turns[start : start + size]
    inside = {turn.id for turn in turns}
    answered = [question for question in own if inside.issuperset(question.gold)]
    strange = [replace(question, gold=()) for question in own if not inside.intersection(question.gold)]
    request = chance.sample(answered, min(_SMALL_QUESTIONS, len(answered)))
    request += chance.sample(strange, min(_SMALL_STRANGERS, len(strange)))
    return replace(whole, turns=turns, questions=tuple(request))
