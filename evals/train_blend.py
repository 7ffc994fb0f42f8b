"""Train the blend that judges candidates (`read/blend.toml`).

    python -m evals.train_blend locomo=locomo.json longmemeval=longmemeval.json beam=beam.json

Give several sets of conversations: each weighs the same, so that no one of them is fitted. Questions of other people
are asked too, and small parts of each conversation are used as if they were all there is, so that the blend learns
what nothing looks like, and what little looks like. It prints how well each set is ranked by weights that were fitted
without the conversation asked, and writes the file.
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
from evals.adapter import USER, as_message
from evals.datasets import load
from evals.fitting import RankingExample, balanced, fit_listwise, ndcg_at, platt, recall_at
from evals.material import IDLE, Material, materials
from recollect import AsyncMemory
from recollect.config.settings import Settings
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.read.features import FEATURE_NAMES, compute_features
from recollect.read.fuse import Blend
from recollect.read.gather import CandidateQuery, GatheredCandidates, gather
from recollect.read.question import analyze_question
from recollect.search import SearchDeps
from recollect.text.time_expressions import find_periods

FOLDS = 5
POOL = 120
WEIGHT_OF_SMALL = 0.5
READ = Path(recollect.read.__file__).parent


class OpenConversation:
    """A conversation in a ledger of its own, open for questions."""

    def __init__(self, finders: SearchDeps, rows: dict[int, str]) -> None:
        self.finders = finders
        self.rows = rows

    async def ask(self, text: str) -> tuple[GatheredCandidates, np.ndarray]:
        """The candidates of a question and their signals."""
        finders = self.finders
        [vector] = await finders.embedder.embed([text], role="query")
        spoken_of = tuple(find_periods(text, at=now()))
        expected = CandidateQuery(
            question=analyze_question(text), words=text, vector=vector, periods=spoken_of, pool=POOL
        )
        ruler = await finders.calibration.get()
        results = await gather(Scope(USER), expected, ledger=finders.ledger, index=finders.index, calibration=ruler)
        return results, compute_features(results.table, results.stats)

    def right(self, ranked: GatheredCandidates, gold: Sequence[str]) -> np.ndarray:
        """Which of the candidates answer."""
        return np.array([self.rows[int(row)] in gold for row in ranked.table.rows], bool)


@asynccontextmanager
async def open_conversation(material: Material, home: Path) -> AsyncIterator[OpenConversation]:
    """The conversation, remembered through the public API when it is first opened."""
    # Rows must be those of the turns alone, in their order.
    async with AsyncMemory(settings=Settings(home=home, learn="off")) as memory:
        finders = (await memory.service())._search_deps
        if not await memory.admin.users():
            turns = [turn for turn in material.conversation.turns if turn.text.strip()]
            for session, group in groupby(turns, key=lambda turn: turn.session):
                text = list(group)
                await memory.remember([as_message(turn) for turn in text], user_id=USER, session_id=session)
        yield OpenConversation(finders, await _rows(material, finders))


async def _rows(material: Material, finders: SearchDeps) -> dict[int, str]:
    """The file's id of each row: turns get their rows in the order they are remembered."""
    _, rows = await finders.ledger.index_rows(USER, model=finders.embedder.model, after=0)
    messages = [turn.id for turn in material.conversation.turns if turn.text.strip()]
    return dict(zip(sorted(row.row for row in rows), messages, strict=True))


async def collect(material: Material, home: Path) -> list[RankingExample]:
    """Ask every question, and note what its candidates are like."""
    requests = []
    async with open_conversation(material, home) as open_:
        for question in material.conversation.questions:
            results, table = await open_.ask(question.text)
            if not len(table):
                continue
            kind = "idle" if question.category == IDLE else "answered" if question.gold else "strange"
            requests.append(
                RankingExample(
                    group=f"{material.source} {'small ' if material.small else ''}{kind}",
                    table=table,
                    right=open_.right(results, question.gold),
                    answers=len(question.gold),
                    weight=WEIGHT_OF_SMALL if material.small else 1.0,
                )
            )
    return requests


def fit(request: Sequence[RankingExample]) -> Blend:
    """Weights that rank answers first, on a scale where one half is as much like an answer as like anything else."""
    base, weights = fit_listwise([each for each in request if each.right.any() or not each.answers])
    odds = [base + each.table @ weights for each in request]
    shift, scale = platt(*balanced(request, odds))
    return Blend(shift + scale * base, (scale * weights).astype(np.float32))


def report(folds: Sequence[int], request: Sequence[Sequence[RankingExample]]) -> None:
    """How each set is ranked by weights fitted without the conversation asked."""
    scores: dict[str, list[tuple[float, float]]] = {}
    for fold in range(FOLDS):
        blend = fit([each for at, own in zip(folds, request, strict=True) if at != fold for each in own])
        for each in (each for at, own in zip(folds, request, strict=True) if at == fold for each in own):
            if each.answers:
                odds = each.table @ blend.weights
                scores.setdefault(each.group, []).append((recall_at(each, odds), ndcg_at(each, odds)))
    for group, pairs in sorted(scores.items()):
        recall, ndcg = np.mean(pairs, axis=0)
        print(f"  {group:28s} {len(pairs):5d} questions   R@10 {recall:.4f}   NDCG@10 {ndcg:.4f}   (held out)")


def write(path: Path, blend: Blend) -> None:
    """A readable file of weights."""
    lines = [
        "# What each signal adds to the log-odds that a candidate answers.",
        "# Written by evals/train_blend.py; see docs/evaluation.md.",
        "",
        f"base = {blend.base:.3f}",
    ]
    lines += ["", "[weights]"]
    lines += [f"{name} = {weight:.3f}" for name, weight in zip(FEATURE_NAMES, blend.weights, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


async def train(sets: Sequence[str]) -> None:
    """Read the sets, collect, fit, report, write."""
    inputs = [part.partition("=") for part in sets]
    work = [each for name, _, path in inputs for each in materials(name, load(name, Path(path), limit=0))]
    names = sorted({each.conversation.name for each in work})
    folds = [names.index(each.conversation.name) % FOLDS for each in work]
    with tempfile.TemporaryDirectory() as home:
        homes = [Path(home) / str(at) for at in range(len(work))]
        requests = []
        for at, (material, own) in enumerate(zip(work, homes, strict=True), 1):
            requests.append(await collect(material, own))
            if not at % 20:
                print(f"{at} of {len(work)} conversations", file=sys.stderr)

        report(folds, requests)
        write(READ / "blend.toml", fit([each for own in requests for each in own]))


if __name__ == "__main__":
    if len(sys.argv) < 2 or not all("=" in part for part in sys.argv[1:]):
        sys.exit(__doc__)
    asyncio.run(train(sys.argv[1:]))
