"""Things people say to an assistant that no memory answers: greetings, sums, facts of the world, orders, code."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evals.adapter import MemoryAdapter
from evals.conversation import DatasetConversation, DatasetQuestion
from evals.metrics import CUTS, rank_marks

if TYPE_CHECKING:
    from recollect.config.settings import Settings
from recollect.cli.recipes import shared_embedder, temporary_memory

EVERYDAY = (
    "hello",
    "good evening to you",
    "many thanks, that was it",
    "okay, sounds good",
    "haha nice",
    "make me laugh",
    "how much is 48 divided by 6",
    "what is 15 percent of 260",
    "how many centimetres is a foot",
    "how do you say goodbye in spanish",
    "which planet is closest to the sun",
    "who painted the sunflowers",
    "at what temperature does water freeze",
    "what does photosynthesis do",
    "wake me at half past six",
    "switch the bedroom lamp on",
    "put on something by mozart",
    "sort a dictionary by value in python",
    "what is the difference between tcp and udp",
    "write a haiku about autumn",
)


# A conversation with few questions of its own is probed less, so that probes do not outweigh them.
_FEW_QUESTIONS = 5
_FOREIGN_PROBES = 20


@dataclass(frozen=True, slots=True)
class RankedAnswer:
    """What a search gave: turns with their scores, best first, and how long it took."""

    ranked: tuple[tuple[str, float], ...]
    ms: float

    @property
    def ids(self) -> list[str]:
        return [id for id, _ in self.ranked]

    @property
    def best(self) -> float:
        """The highest score; what found nothing ranks below everything."""
        return self.ranked[0][1] if self.ranked else float("-inf")


@dataclass(frozen=True, slots=True)
class ScoredQuestion:
    """A question with an answer to find, and how well it was found; `fresh` where newest must beat older."""

    conversation: str
    question: DatasetQuestion
    answer: RankedAnswer
    marks: dict[str, float]
    fresh: bool | None
    tokens: float


@dataclass(frozen=True, slots=True)
class Probe:
    """What nothing here answers: a question about others, something everyday, or one made to have no answer."""

    conversation: str
    kind: str
    text: str
    answer: RankedAnswer


@dataclass(slots=True)
class EvaluationRun:
    """Everything that was measured."""

    k: int
    conversations: int = 0
    turns: int = 0
    without_evidence: int = 0
    index_s: float = 0.0
    scored: list[ScoredQuestion] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)


def probes_of(
    conversation: DatasetConversation,
    other_conversations: Sequence[DatasetConversation],
    *,
    everyday: Sequence[str] = EVERYDAY,
) -> list[tuple[str, str]]:
    """The kind and text of every probe; the same ones on every run."""
    draw = random.Random(conversation.name)
    foreign = [
        question.text
        for other in other_conversations
        if not other.speakers & conversation.speakers
        for question in other.questions
        if question.headline
    ]
    few = len(conversation.questions) <= _FEW_QUESTIONS
    foreign_sample = draw.sample(foreign, min(1 if few else _FOREIGN_PROBES, len(foreign)))
    everyday_sample = draw.sample(list(everyday), min(1, len(everyday))) if few else list(everyday)
    return [("foreign", text) for text in foreign_sample] + [("everyday", text) for text in everyday_sample]


def steps_of(conversations: Sequence[DatasetConversation]) -> int:
    """How far progress will count: turns to remember and questions to ask."""
    probes = sum(len(probes_of(each, conversations)) for each in conversations)
    return probes + sum(len(each.turns) + len(each.questions) for each in conversations)


async def evaluate(
    conversations: Sequence[DatasetConversation],
    settings: Settings,
    *,
    k: int = 10,
    everyday: Sequence[str] = EVERYDAY,
    progress: Callable[[int], None] = lambda done: None,
) -> EvaluationRun:
    """Remember each conversation in a ledger of its own, then ask its questions and its probes."""
    run, steps = EvaluationRun(k=k), _Steps(progress)
    async with shared_embedder(settings) as embedder:
        for conversation in conversations:
            async with temporary_memory(settings, embedder) as memory:
                subject = MemoryAdapter(memory)
                run.index_s += await subject.remember(conversation.turns, steps.more)
                examination = _Examination(run, conversation, subject)
                for question in conversation.questions:
                    await examination.ask(question)
                    steps.more(1)
                for kind, text in probes_of(conversation, conversations, everyday=everyday):
                    await examination.probe(kind, text)
                    steps.more(1)
            run.notes += subject.notes
            run.conversations += 1
            run.turns += len(conversation.turns)
    return run


class _Steps:
    """Counts what is done, and tells it."""

    def __init__(self, progress: Callable[[int], None]) -> None:
        self._progress = progress
        self._done = 0

    def more(self, number: int) -> None:
        """So many more are done."""
        self._done += number
        self._progress(self._done)


class _Examination:
    """The questions to one conversation; what comes out goes into the run."""

    def __init__(self, run: EvaluationRun, conversation: DatasetConversation, subject: MemoryAdapter) -> None:
        self._run = run
        self._name = conversation.name
        self._subject = subject
        self._position = {turn.id: number for number, turn in enumerate(conversation.turns)}
        self._length = {turn.id: len(turn.text) for turn in conversation.turns}

    async def ask(self, question: DatasetQuestion) -> None:
        """A question of the conversation's own; without evidence it is a probe, or cannot be judged at all."""
        if not question.gold:
            self._run.without_evidence += 1
            if not question.headline:
                await self.probe("unanswerable", question.text)
            return
        answer = await self._search(question.text)
        ids = answer.ids
        marks = rank_marks(ids, question.gold, k=self._run.k)
        # A token is about four characters of English.
        tokens = sum(self._length[id] for id in ids[: self._run.k]) / 4
        self._run.scored.append(
            ScoredQuestion(self._name, question, answer, marks, self._fresh(question, ids), tokens)
        )

    async def probe(self, kind: str, text: str) -> None:
        """Something that nothing here answers."""
        self._run.probes.append(Probe(self._name, kind, text, await self._search(text)))

    async def _search(self, text: str) -> RankedAnswer:
        ranked, taken = await self._subject.search(text, max(*CUTS, self._run.k))
        return RankedAnswer(tuple(ranked), taken * 1000)

    def _fresh(self, question: DatasetQuestion, ids: Sequence[str]) -> bool | None:
        """Whether the newest of several statements stands above the older ones; None where that is not asked."""
        if len(question.gold) < 2 or "knowledge" not in question.category:
            return None
        newest, *older = sorted(question.gold, key=lambda id: -self._position[id])
        rank = {id: place for place, id in enumerate(ids)}
        return rank.get(newest, len(ids)) < min(rank.get(id, len(ids)) for id in older)
