"""Train the model that tells whether a newer statement replaces an older one (`read/prefer_newest.npz`).

    python -m evals.train_newest truth=truth_dev.json longmemeval=longmemeval_dev.json

It learns in two stages. The first sees the words of labelled pairs (`evals/data/statement_pairs.jsonl` and pairs of
the truth material). The second adds the signals of a search: each case is remembered for a user of its own, its
question is searched, and the pairs of candidates are labelled. Both are linear and are folded into one. It prints
figures for cases that were kept aside (five folds, whole cases), and writes the weights trained on all.
Needs scikit-learn.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import tempfile
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import combinations, groupby, permutations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from recollect import AsyncMemory
from recollect.evaluation.benchmarks import load
from recollect.evaluation.subject import USER, as_message
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.models.linear_text import LinearTextModel, save_model
from recollect.models.static_embedder import StaticEmbedder
from recollect.read.candidate import Candidate
from recollect.read.current import replace_stale_turns
from recollect.read.fetch import Closer, fetch
from recollect.read.fuse import fuse
from recollect.read.gather import Wanted, gather
from recollect.read.prefer_newest import MAX_CANDIDATES, place_newer_first
from recollect.read.question import look_at
from recollect.read.rank import rank
from recollect.read.ruler import BUNDLED
from recollect.read.signals import signals
from recollect.read.statement_pairs import (
    BUCKETS,
    MIN_ODDS,
    MODEL_FILE,
    PAIR_SIGNALS,
    TEXT_SIGNALS,
    find_pairs,
    pair_buckets,
    read_statement,
    text_signals,
)
from recollect.settings import Settings

DATA = Path(__file__).parent / "data"
FOLDS = 5
# A wrong move costs more than a missed one.
CAUTION = 1.5
# How much the hashed words count beside the named signals while fitting.
WORD_SCALE = 3.0
READ_CANDIDATES = 18
QUIET = {"rewrite": "off", "session_episode": False, "compress_every": 0, "learn": "selector"}
Label = Callable[[str, str], tuple[int, float] | None]


@dataclass(frozen=True, slots=True)
class TextPair:
    """Two texts and whether the newer replaces the older."""

    case: str
    older: str
    newer: str
    replaces: bool
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Case:
    """Statements with their times, a question, how pairs are labelled, and which first hit is right."""

    name: str
    group: str
    question: str
    said: tuple[tuple[str, datetime, bool], ...]
    label: Label
    is_right: Callable[[str], bool]


@dataclass(slots=True)
class SearchedCase:
    """The candidates of a case's question, and its pairs."""

    case: Case
    texts: list[str]
    places: list[tuple[int, int]]
    statements: list[tuple[str, str]]
    signals: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


# ------------------------------------------------------------ labelled text pairs
def labelled_pairs() -> list[dict[str, Any]]:
    """Return the rows of `statement_pairs.jsonl`."""
    return [json.loads(line) for line in (DATA / "statement_pairs.jsonl").read_text(encoding="utf-8").splitlines()]


def text_pairs(truth: dict[str, Any]) -> list[TextPair]:
    """Return pairs of texts without a question; each case of the truth material counts as six pairs."""
    pairs = [TextPair(row["id"], row["older"], row["newer"], row["label"] == "replaces") for row in labelled_pairs()]
    own = [*_pairs_of_changes(truth["changes"]), *_pairs_of_lookalikes(truth["lookalikes"])]
    counts = Counter(case for case, *_ in own)
    return pairs + [TextPair(case, *rest, 6 / counts[case]) for case, *rest in own]


def _pairs_of_changes(cases: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str, str, bool]]:
    for case in cases:
        slots: dict[str, list[tuple[int, str, str, bool]]] = defaultdict(list)
        for at, step in enumerate(case["steps"]):
            for claim in step["claims"]:
                changes = claim["change"] in ("correction", "ended")
                slots[claim["slot"]].append((at, step["message"], claim["content"], changes))
        for said in slots.values():
            for (at, *older, _), (later, *newer, changes) in combinations(said, 2):
                # There and back: the third statement says what the first did.
                if at != later and not (case["kind"] == "there and back" and (at, later) == (0, 2)):
                    yield from ((case["id"], old, new, changes) for old in older for new in newer)
        for one, other in permutations(slots.values(), 2):
            yield from ((case["id"], old[2], new[2], False) for old in one for new in other if old[0] <= new[0])


def _pairs_of_lookalikes(cases: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str, str, bool]]:
    for case in cases:
        for one, other in permutations(case["statements"], 2):
            yield case["id"], one["text"], other["text"], False
            yield case["id"], one["message"], other["message"], False


# ------------------------------------------------------------ cases with a question
def truth_cases(truth: dict[str, Any]) -> Iterator[Case]:
    """Yield the change sequences and look-alikes, as messages, as statements and as both."""
    for case in truth["changes"]:
        steps = [(_day(step["day"], at), step) for at, step in enumerate(case["steps"])]
        turns = [(step["message"], at, True) for at, step in steps]
        last = {claim["slot"]: (claim["content"], at, False) for at, step in steps for claim in step["claims"]}
        for group, said in (("changes", turns), ("changes, learned", [*turns, *last.values()])):
            yield _change_case(case, group, [*_background(truth, case["current"], case["stale"]), *said])
    for case in truth["lookalikes"]:
        start = datetime(2026, 3, 2, 9, tzinfo=UTC)
        days = [(start + timedelta(days=at), each) for at, each in enumerate(case["statements"])]
        turns = [(each["message"], at, True) for at, each in days]
        stated = [(each["text"], at, False) for at, each in days]
        ways = (("look-alikes", turns), ("look-alikes, stated", stated), ("look-alikes, learned", [*turns, *stated]))
        for group, said in ways:
            yield _lookalike_case(case, group, [*_background(truth, case["right"], *case["wrong"]), *said])


def _change_case(case: dict[str, Any], group: str, said: Sequence[tuple[str, datetime, bool]]) -> Case:
    current, stale = (re.compile(case[name] or r"(?!)", re.IGNORECASE) for name in ("current", "stale"))

    def is_right(text: str) -> bool:
        return current.search(text) is not None

    def label(older: str, newer: str) -> tuple[int, float] | None:
        if is_right(newer) and not is_right(older) and stale.search(older):
            return 1, 1.0
        return (0, 1.0) if is_right(older) and not is_right(newer) else None

    return Case(case["id"], group, case["ask"], tuple(said), label, is_right)


def _lookalike_case(case: dict[str, Any], group: str, said: Sequence[tuple[str, datetime, bool]]) -> Case:
    right, wrong = (re.compile("|".join(each), re.IGNORECASE) for each in ([case["right"]], case["wrong"]))

    def is_right(text: str) -> bool:
        return right.search(text) is not None

    def label(older: str, newer: str) -> tuple[int, float] | None:
        if is_right(newer):
            return None
        return (0, 1.0) if is_right(older) else (0, 0.3) if wrong.search(older) and wrong.search(newer) else None

    return Case(case["id"], group, case["ask"], tuple(said), label, is_right)


def pair_cases(truth: dict[str, Any], fillers: Sequence[str]) -> Iterator[Case]:
    """Yield the labelled pairs that have a question, as they are and inside longer messages."""
    rows, chance = labelled_pairs(), random.Random(5)
    start = datetime(2026, 3, 2, 9, tzinfo=UTC)
    for row in rows:
        if "question" not in row:
            continue
        for is_long in (False, True):
            at = start + timedelta(days=chance.uniform(0, 20))
            said = [
                (row["older"], at),
                (row["newer"], at + timedelta(days=chance.choice((0.01, 0.1, 1, 3, 10, 30, 90)))),
            ]
            others = [chance.choice(rows) for _ in range(6)]
            said += [(each["newer"], start + timedelta(days=chance.uniform(0, 100))) for each in others]
            messages = [
                (_wrapped(text, chance, fillers), when, True)
                if is_long
                else (text, when, not text.startswith(("The user", "用户")))
                for text, when in said
            ]
            group = f"{row['label']}, {'long' if is_long else 'short'}"
            yield _pair_case(row, group, row["question"], [*_background(truth), *messages])


def update_cases() -> Iterator[Case]:
    """Yield long messages that state an update by the way, among others on the same topic."""
    text = (DATA / "update_messages.jsonl").read_text(encoding="utf-8")
    rows, chance = [json.loads(line) for line in text.splitlines()], random.Random(3)
    for row in rows:
        noise = chance.sample([each for other in rows if other is not row for each in other["others"]], 12)
        for shuffled in (False, True):
            order = [row["older"], *row["others"], *noise]
            if shuffled:
                chance.shuffle(order)
            order.insert(chance.randrange(order.index(row["older"]), len(order)) + 1, row["newer"])
            at, said = datetime(2026, 3, 2, 9, tzinfo=UTC), []
            for each in order:
                at += timedelta(days=chance.choice((0.01, 0.01, 1, 5, 20)))
                said.append((each, at, True))
            yield _pair_case(row | {"label": "replaces"}, "replaces, message", row["question"], said)


def _pair_case(row: dict[str, Any], group: str, question: str, said: Sequence[tuple[str, datetime, bool]]) -> Case:
    replaces = row["label"] == "replaces"

    def label(older: str, newer: str) -> tuple[int, float] | None:
        if _states(older, row["older"]) and _states(newer, row["newer"]):
            return int(replaces), 1.0
        stated = _states(older, row["older"]) or _states(older, row["newer"])
        return (0, 0.3) if stated and not _states(newer, row["older"]) and not _states(newer, row["newer"]) else None

    right = row["newer" if replaces else "older"]
    return Case(row["id"], group, question, tuple(said), label, lambda text: _states(text, right))


def _states(text: str, statement: str) -> bool:
    """Return whether a turn, or a statement that was selected from one, is what the statement says."""
    if statement in text or text in statement:
        return True
    words, stated = set(re.findall(r"\w+", text.casefold())), set(re.findall(r"\w+", statement.casefold()))
    return len(words & stated) >= 0.8 * min(len(words), len(stated))


def _background(truth: dict[str, Any], *patterns: str) -> list[tuple[str, datetime, bool]]:
    at = datetime(2026, 1, 5, 9, tzinfo=UTC)
    given = [pattern for pattern in patterns if pattern]
    return [
        (fact, at, False)
        for fact in truth["background"]
        if not any(re.search(pattern, fact, re.IGNORECASE) for pattern in given)
    ]


def _day(day: str, at: int) -> datetime:
    return datetime.fromisoformat(f"{day}T{9 + at:02}:00:00+00:00")


def _wrapped(text: str, chance: random.Random, fillers: Sequence[str]) -> str:
    filler = chance.choice(fillers)
    return chance.choice((f"{text}. {filler}", f"{filler} {text}", f"By the way, {text}. {filler}"))


# ------------------------------------------------------------ searching the cases
async def search_cases(cases: Sequence[Case], home: Path) -> list[SearchedCase]:
    """Remember each case for a user of its own, and search its question."""
    searched = []
    async with AsyncMemory(settings=Settings(home=home, **QUIET)) as memory:
        for number, case in enumerate(cases):
            user = f"{case.name}-{number}"
            await _remember(memory, user, case)
            found, vectors = await _candidates(memory, user, case.question)
            searched.append(_searched(case, found, vectors))
    return searched


async def _remember(memory: AsyncMemory, user: str, case: Case) -> None:
    facts = [(text, at) for text, at, is_turn in case.said if not is_turn]
    await memory.import_(
        [
            {
                "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{user}/{text}")),
                "memory": text,
                "user_id": user,
                "category": "fact",
                "created_at": at.isoformat(),
            }
            for text, at in facts
        ]
    )
    turns = sorted(((at, text) for text, at, is_turn in case.said if is_turn), key=lambda each: each[0])
    for number, (at, text) in enumerate(turns):
        message = {"role": "user", "content": text, "timestamp": at.isoformat()}
        await memory.remember([message], user_id=user, session_id=f"{user}-{number}", wait=True)


async def _candidates(memory: AsyncMemory, user: str, text: str) -> tuple[list[Candidate], np.ndarray]:
    """Return the ranked candidates of a question, as the step that is trained gets them, and their vectors."""
    service = await memory._open()
    finders, taste = service._finders, service._habits.taste
    [vector] = await finders.embedder.embed([text], role="query")
    wanted = Wanted(question=look_at(text), words=text, vector=vector, pool=50)
    found = await gather(
        Scope(user), wanted, ledger=finders.ledger, index=finders.index, ruler=await finders.ruler.get()
    )
    relevance = fuse(signals(found.pool, found.outlook), found.outlook.count, taste.fusion)
    closer = Closer(count=READ_CANDIDATES, least=memory.settings.search_min_score)
    read, _ = await fetch(Scope(user), found, wanted, relevance, closer, ledger=finders.ledger)
    read, _ = await replace_stale_turns(Scope(user), read, found, wanted, ledger=finders.ledger)
    first = rank(read, taste.weights, now=now())[:MAX_CANDIDATES]
    return first, await found.view.vectors(np.array([each.row for each in first], np.int64))


def _searched(case: Case, first: Sequence[Candidate], vectors: np.ndarray) -> SearchedCase:
    texts = [each.record.content for each in first]
    pairs = find_pairs(first, BUNDLED.scaled(vectors @ vectors.T), look_at(case.question)) if len(first) > 1 else []
    labels = [case.label(texts[pair.older], texts[pair.newer]) for pair in pairs]
    return SearchedCase(
        case=case,
        texts=texts,
        places=[(pair.older, pair.newer) for pair in pairs],
        statements=[(texts[pair.older], texts[pair.newer]) for pair in pairs],
        signals=np.array([pair.signals for pair in pairs], float).reshape(-1, len(PAIR_SIGNALS)),
        labels=np.array([-1 if each is None else each[0] for each in labels], int),
        weights=np.array([0.0 if each is None else each[1] for each in labels]),
    )


async def search_longmemeval(path: Path, home: Path) -> list[SearchedCase]:
    """Search the questions of LongMemEval; in its knowledge updates the newest of the answers replaces the others."""
    searched = []
    for number, conversation in enumerate(load("longmemeval", path, limit=0)):
        async with AsyncMemory(settings=Settings(home=home / str(number), **QUIET)) as memory:
            turns = [turn for turn in conversation.turns if turn.text.strip()]
            for session, group in groupby(turns, key=lambda turn: turn.session):
                said = [as_message(turn) for turn in group]
                await memory.remember(said, user_id=USER, session_id=session, wait=True)
            text_of = {turn.id: turn.text for turn in turns}
            for question in conversation.questions:
                gold = [text_of[id] for id in question.gold if id in text_of]
                if not gold or not question.headline:
                    continue
                changed = "knowledge" in question.category and len(gold) > 1
                newest = max(gold, key=lambda text: max(at for at, turn in enumerate(turns) if turn.text == text))
                found, vectors = await _candidates(memory, USER, question.text)

                case = _longmemeval_case(question.id, question.text, gold, newest if changed else "")
                searched.append(_searched(case, found, vectors))
    return searched


def _longmemeval_case(name: str, question: str, gold: Sequence[str], newest: str) -> Case:
    def label(older: str, newer: str) -> tuple[int, float] | None:
        if not _among(older, gold):
            return None
        if newest and _states(newer, newest) and not _states(older, newest):
            return 1, 1.0
        return None if _among(newer, gold) else (0, 0.3)

    def is_right(text: str) -> bool:
        return _states(text, newest) if newest else _among(text, gold)

    group = "longmemeval, updates" if newest else "longmemeval"
    return Case(name, group, question, (), label, is_right)


def _among(text: str, turns: Sequence[str]) -> bool:
    return any(_states(text, turn) for turn in turns)


# ------------------------------------------------------------ fitting
def word_table(pairs: Sequence[tuple[str, str]]) -> csr_matrix:
    """Return the hashed words of pairs; each pair counts the same, however long it is."""
    rows = [pair_buckets(read_statement(older), read_statement(newer)) for older, newer in pairs]
    ends = np.cumsum([0, *map(len, rows)])
    values = np.concatenate([[1 / np.sqrt(len(row))] * len(row) for row in rows if row])
    return csr_matrix((values, np.concatenate(rows).astype(int), ends), shape=(len(rows), BUCKETS))


@dataclass(frozen=True, slots=True)
class TextStage:
    """The first stage's inputs."""

    inputs: csr_matrix
    labels: np.ndarray
    weights: np.ndarray
    folds: np.ndarray

    def fit(self, *left_out: int) -> LogisticRegression:
        use = ~np.isin(self.folds, left_out)
        return LogisticRegression(C=1.0, max_iter=2_000).fit(
            self.inputs[use], self.labels[use], sample_weight=self.weights[use]
        )


class Trainer:
    """Both stages, with the cases of each fold known."""

    def __init__(self, pairs: Sequence[TextPair], cases: Sequence[SearchedCase], alike: np.ndarray) -> None:
        names = sorted({each.case for each in pairs} | {each.case.name for each in cases})
        random.Random(0).shuffle(names)
        fold = {name: at % FOLDS for at, name in enumerate(names)}
        text = np.array(
            [
                text_signals(read_statement(each.older), read_statement(each.newer), value)
                for each, value in zip(pairs, alike.tolist(), strict=True)
            ],
            float,
        )
        words = word_table([(each.older, each.newer) for each in pairs])
        self._text = TextStage(
            inputs=hstack([words * WORD_SCALE, text]).tocsr(),
            labels=np.array([each.replaces for each in pairs]),
            weights=np.array([each.weight for each in pairs]),
            folds=np.array([fold[each.case] for each in pairs]),
        )
        self.cases = cases
        self._signals = np.concatenate([each.signals for each in cases])
        self._words = word_table([pair for each in cases for pair in each.statements]) * WORD_SCALE
        self._inputs = hstack([self._words, self._signals[:, : len(TEXT_SIGNALS)]]).tocsr()
        self.labels = np.concatenate([each.labels for each in cases])
        self._weights = np.concatenate([each.weights for each in cases])
        self.folds = np.array([fold[each.case.name] for each in cases for _ in each.places], int)
        self._deviation = self._signals.std(0) + 1e-6

    def _fit_signals(self, odds: np.ndarray, use: np.ndarray) -> LogisticRegression:
        use = use & (self.labels >= 0)
        labels, weights = self.labels[use], self._weights[use].copy()
        weights[labels == 0] *= CAUTION * weights[labels == 1].sum() / weights[labels == 0].sum()
        table = np.column_stack([odds, self._signals / self._deviation])[use]
        return LogisticRegression(C=0.1, max_iter=2_000).fit(table, labels, sample_weight=weights)

    def _odds(self, left_out: Sequence[int]) -> np.ndarray:
        """Return the first stage's odds of every pair, by a model that saw neither its fold nor those left out."""
        odds = np.zeros(len(self.labels))
        for fold in range(FOLDS):
            own = self.folds == fold
            odds[own] = self._text.fit(fold, *left_out).decision_function(self._inputs[own])
        return odds

    def held_out(self) -> np.ndarray:
        """Return the odds of each pair by weights fitted without its case."""
        final = np.zeros(len(self.labels))
        for fold in range(FOLDS):
            own, odds = self.folds == fold, self._odds([fold])
            final[own] = self._apply(self._fit_signals(odds, ~own), odds)[own]
        return final

    def _apply(self, model: LogisticRegression, odds: np.ndarray) -> np.ndarray:
        return model.decision_function(np.column_stack([odds, self._signals / self._deviation]))

    def fit(self) -> LinearTextModel:
        """Return both stages, fitted on everything and folded into one linear model."""
        text, last = self._text.fit(), self._fit_signals(self._odds([]), np.ones(len(self.labels), bool))
        share, dense = last.coef_[0][0], last.coef_[0][1:] / self._deviation
        dense[: len(TEXT_SIGNALS)] += share * text.coef_[0][BUCKETS:]
        return LinearTextModel(
            outputs=("replaces",),
            sparse=(share * WORD_SCALE * text.coef_[0][:BUCKETS, None]).astype(np.float32),
            dense=dense[:, None].astype(np.float32),
            bias=(last.intercept_ + share * text.intercept_).astype(np.float32),
        )


def report(trainer: Trainer, odds: np.ndarray) -> None:
    """Print how often the right statement is first, before and after, with weights fitted without the case."""
    counts: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    start = 0
    for each in trainer.cases:
        own = odds[start : start + len(each.places)]
        start += len(each.places)
        moves = [place for place, value in zip(each.places, own, strict=True) if value > MIN_ODDS]
        order = place_newer_first(len(each.texts), [] if look_at(each.case.question).of_the_past else moves)
        firsts = [each.texts[at] for at in ([0, order[0]] if order else [])]
        before, after = map(each.case.is_right, firsts) if firsts else (False, False)
        counts[each.case.group].append((before, after))
    for group, rows in sorted(counts.items()):
        before, after = np.sum(rows, axis=0)
        print(f"  {group:24s} {len(rows):4d} cases   right one first: {before} before, {after} after   (held out)")
    known = trainer.labels >= 0
    print(f"  {known.sum()} pairs, {trainer.labels[known].sum()} replace; ", end="")
    print(f"AUROC {roc_auc_score(trainer.labels[known], odds[known]):.3f} (held out)")


async def train(truth: dict[str, Any], longmemeval: Path) -> None:
    """Search, fit, report, write."""
    conversations = load("longmemeval", longmemeval, limit=0)
    said = [turn.text for each in conversations for turn in each.turns[:60] if turn.speaker == "user"]
    fillers = [text for text in said if 60 < len(text) < 400]
    cases = [*truth_cases(truth), *pair_cases(truth, fillers), *update_cases()]
    with tempfile.TemporaryDirectory() as home:
        searched = await search_cases(cases, Path(home) / "cases")
        searched += await search_longmemeval(longmemeval, Path(home) / "longmemeval")
    pairs = text_pairs(truth)
    embedder = StaticEmbedder()
    older, newer = [await embedder.embed([getattr(each, end) for each in pairs]) for end in ("older", "newer")]
    trainer = Trainer(pairs, searched, BUNDLED.scaled((older * newer).sum(1)))
    report(trainer, trainer.held_out())
    save_model(MODEL_FILE, trainer.fit())


if __name__ == "__main__":
    paths = dict(part.split("=", 1) for part in sys.argv[1:] if "=" in part)
    if set(paths) != {"truth", "longmemeval"}:
        sys.exit(__doc__)
    material = json.loads(Path(paths["truth"]).read_text(encoding="utf-8"))
    asyncio.run(train(material, Path(paths["longmemeval"])))
