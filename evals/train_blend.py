"""Train the blend that judges candidates (`read/blend.toml`) and the one that tells updates (`read/freshen.toml`).

    python -m evals.train_blend locomo=locomo.json longmemeval=longmemeval.json beam=beam.json

Give several sets of conversations: each weighs the same, so that no one of them is fitted. Questions of other people
are asked too, and small parts of each conversation are used as if they were all there is, so that the blend learns
what nothing looks like, and what little looks like. It prints how well each set is ranked by weights that were fitted
without the conversation asked, and writes both files.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path

import numpy as np

import recollect.read
from evals.fitting import Asked, balanced, fit_listwise, fit_logistic, ndcg_at, platt, recall_at
from evals.material import IDLE, Material, materials
from recollect import AsyncMemory
from recollect.evaluation.benchmarks import load
from recollect.evaluation.subject import USER, as_message
from recollect.language.when import periods
from recollect.model.query import EVERYTHING
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.read.candidate import Candidate
from recollect.read.fetch import parts_of
from recollect.read.freshen import LOOKED_AT, PAIR_SIGNALS, pair_table
from recollect.read.fuse import Blend
from recollect.read.gather import Gathered, Wanted, gather
from recollect.read.question import look_at
from recollect.read.search import Finders
from recollect.read.signals import SIGNALS, signals
from recollect.settings import Settings

FOLDS = 5
POOL = 120
WEIGHT_OF_SMALL = 0.5
# Questions whose answers are several statements of one fact, of which the newest holds.
UPDATES = "knowledge"
# A wrong move costs rank everywhere, a missed one only where something changed.
CAUTION = 2.0
READ = Path(recollect.read.__file__).parent


class Held:
    """A conversation in a ledger of its own, open for questions."""

    def __init__(self, finders: Finders, rows: dict[int, str]) -> None:
        self.finders = finders
        self.rows = rows

    async def ask(self, text: str) -> tuple[Gathered, np.ndarray]:
        """The candidates of a question and their signals."""
        finders = self.finders
        [vector] = await finders.embedder.embed([text], role="query")
        spoken_of = tuple(periods(text, at=now()))
        wanted = Wanted(question=look_at(text), words=text, vector=vector, periods=spoken_of, pool=POOL)
        ruler = await finders.ruler.get()
        found = await gather(Scope(USER), wanted, ledger=finders.ledger, index=finders.index, ruler=ruler)
        return found, signals(found.pool, found.outlook)

    def right(self, found: Gathered, gold: Sequence[str]) -> np.ndarray:
        """Which of the candidates answer."""
        return np.array([self.rows[int(row)] in gold for row in found.pool.rows], bool)


@asynccontextmanager
async def held(material: Material, home: Path) -> AsyncIterator[Held]:
    """The conversation, remembered through the public API when it is first opened."""
    # Rows must be those of the turns alone, in their order.
    async with AsyncMemory(settings=Settings(home=home, learn="off")) as memory:
        finders = (await memory._open())._finders
        if not await memory.users():
            turns = [turn for turn in material.conversation.turns if turn.text.strip()]
            for session, group in groupby(turns, key=lambda turn: turn.session):
                said = list(group)
                await memory.remember([as_message(turn) for turn in said], user_id=USER, session_id=session)
        yield Held(finders, await _rows(material, finders))


async def _rows(material: Material, finders: Finders) -> dict[int, str]:
    """The file's id of each row: turns get their rows in the order they are remembered."""
    _, rows = await finders.ledger.index_rows(USER, model=finders.embedder.model, after=0)
    said = [turn.id for turn in material.conversation.turns if turn.text.strip()]
    return dict(zip(sorted(row.row for row in rows), said, strict=True))


async def collect(material: Material, home: Path) -> list[Asked]:
    """Ask every question, and note what its candidates are like."""
    asked = []
    async with held(material, home) as open_:
        for question in material.conversation.questions:
            found, table = await open_.ask(question.text)
            if not len(table):
                continue
            kind = "idle" if question.category == IDLE else "answered" if question.gold else "strange"
            asked.append(
                Asked(
                    group=f"{material.source} {'small ' if material.small else ''}{kind}",
                    table=table,
                    right=open_.right(found, question.gold),
                    answers=len(question.gold),
                    weight=WEIGHT_OF_SMALL if material.small else 1.0,
                )
            )
    return asked


def fit(asked: Sequence[Asked]) -> Blend:
    """Weights that rank answers first, on a scale where one half is as much like an answer as like anything else."""
    base, weights = fit_listwise([each for each in asked if each.right.any() or not each.answers])
    odds = [base + each.table @ weights for each in asked]
    shift, scale = platt(*balanced(asked, odds))
    return Blend(shift + scale * base, (scale * weights).astype(np.float32))


def report(folds: Sequence[int], asked: Sequence[Sequence[Asked]]) -> None:
    """How each set is ranked by weights fitted without the conversation asked."""
    scores: dict[str, list[tuple[float, float]]] = {}
    for fold in range(FOLDS):
        blend = fit([each for at, own in zip(folds, asked, strict=True) if at != fold for each in own])
        for each in (each for at, own in zip(folds, asked, strict=True) if at == fold for each in own):
            if each.answers:
                odds = each.table @ blend.weights
                scores.setdefault(each.group, []).append((recall_at(each, odds), ndcg_at(each, odds)))
    for group, pairs in sorted(scores.items()):
        recall, ndcg = np.mean(pairs, axis=0)
        print(f"  {group:28s} {len(pairs):5d} questions   R@10 {recall:.4f}   NDCG@10 {ndcg:.4f}   (held out)")


async def collect_pairs(material: Material, home: Path, blend: Blend) -> tuple[list[np.ndarray], list[bool]]:
    """Pairs of candidates where moving the newer up would be right, and where it would be wrong."""
    tables, right = [], []
    async with held(material, home) as open_:
        for question in material.conversation.questions:
            if not question.gold:
                continue
            found, table = await open_.ask(question.text)
            first = await _ranked(open_, found, table, blend)
            vectors = await found.view.vectors(np.array([each.row for each in first], np.int64))
            pairs = pair_table(first, vectors, look_at(question.text))
            changed = UPDATES in question.category and len(question.gold) > 1
            order = {turn.id: at for at, turn in enumerate(material.conversation.turns)}
            newest = max(question.gold, key=lambda id: order[id])
            for (old, new), row in zip(pairs.places, pairs.table, strict=True):
                older, newer = (open_.rows[first[at].row] for at in (old, new))
                if older in question.gold and (newer not in question.gold or (changed and newer == newest)):
                    tables.append(row)
                    right.append(newer in question.gold)
    return tables, right


async def _ranked(open_: Held, found: Gathered, table: np.ndarray, blend: Blend) -> list[Candidate]:
    relevance = blend.relevance(table, found.outlook.count)
    order = np.argsort(-relevance, kind="stable")[:LOOKED_AT]
    rows = {int(found.pool.rows[at]): int(at) for at in order}
    seen = await open_.finders.ledger.fetch(Scope(USER), list(rows), filter=EVERYTHING)
    records = {each.row: each.record for each in seen}
    return [
        Candidate(at, row, records[row], float(relevance[at]), parts=parts_of(found, at)) for row, at in rows.items()
    ]


def fit_pairs(tables: Sequence[np.ndarray], right: Sequence[bool]) -> Blend:
    """Weights that tell an update from something else."""
    answers = np.array(right, float)
    weights = np.where(answers > 0, 1 / answers.sum(), CAUTION / (1 - answers).sum())
    base, scaled = fit_logistic(np.array(tables, float), answers, weights, ridge=0.01)
    return Blend(base, scaled.astype(np.float32))


def write(path: Path, blend: Blend, names: Sequence[str], told: str) -> None:
    """A readable file of weights."""
    lines = [
        f"# {told}",
        "# Written by evals/train_blend.py; see docs/evaluation.md.",
        "",
        f"base = {blend.base:.3f}",
    ]
    lines += ["", "[weights]"]
    lines += [f"{name} = {weight:.3f}" for name, weight in zip(names, blend.weights, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


async def train(sets: Sequence[str]) -> None:
    """Read the sets, collect, fit, report, write."""
    given = [part.partition("=") for part in sets]
    work = [each for name, _, path in given for each in materials(name, load(name, Path(path), limit=0))]
    names = sorted({each.conversation.name for each in work})
    folds = [names.index(each.conversation.name) % FOLDS for each in work]
    with tempfile.TemporaryDirectory() as home:
        homes = [Path(home) / str(at) for at in range(len(work))]
        asked = []
        for at, (material, own) in enumerate(zip(work, homes, strict=True), 1):
            asked.append(await collect(material, own))
            if not at % 20:
                print(f"{at} of {len(work)} conversations", file=sys.stderr)

        report(folds, asked)
        blend = fit([each for own in asked for each in own])
        write(READ / "blend.toml", blend, SIGNALS, "What each signal adds to the log-odds that a candidate answers.")
        tables, right = [], []
        for material, own in zip(work, homes, strict=True):
            if not material.small:
                rows, marks = await collect_pairs(material, own, blend)
                tables, right = tables + rows, right + marks
        pairs = fit_pairs(tables, right)
        write(
            READ / "freshen.toml", pairs, PAIR_SIGNALS, "What tells a newer statement of a fact from something else."
        )
        print(f"  {sum(right)} updates among {len(right)} pairs")


if __name__ == "__main__":
    if len(sys.argv) < 2 or not all("=" in part for part in sys.argv[1:]):
        sys.exit(__doc__)
    asyncio.run(train(sys.argv[1:]))
