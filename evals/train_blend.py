"""Train the blend that judges candidates (`read/blend.toml` and `read/blend_without_late.toml`).

    python -m evals.train_blend longmemeval=FILE friendsqa=FOLDER qmsum=FOLDER own= dialogues= assistant_talks= \\
        [--measure locomo=FILE beam=FILE]

Each set weighs the same, so that no one of them is fitted. Questions of other people are asked too, and small parts
of each conversation are used as if they were all there is, so that the blend learns what nothing looks like, and what
little looks like. It prints how well each set is ranked by weights that were fitted without the conversation asked,
and the sets after `--measure` by the weights it writes.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

import recollect.read
from evals.adapter import USER, as_message
from evals.datasets import load
from evals.dialogues import read_dialogues, read_friendsqa, read_own, read_qmsum
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

    def __init__(self, deps: SearchDeps, rows: dict[int, str]) -> None:
        self.deps = deps
        self.rows = rows

    async def ask(self, text: str) -> tuple[GatheredCandidates, np.ndarray]:
        """Return the candidates of a question and their features."""
        deps = self.deps
        [vector] = await deps.embedder.embed([text], role="query")
        query = CandidateQuery(
            question=analyze_question(text),
            text=text,
            vector=vector,
            periods=tuple(find_periods(text, at=now())),
            pool_size=POOL,
        )
        calibration = await deps.calibration.get()
        gathered = await gather(
            Scope(USER), query, ledger=deps.ledger, index=deps.index, calibration=calibration, late=deps.late
        )
        return gathered, compute_features(gathered.table, gathered.stats)

    def right(self, ranked: GatheredCandidates, gold: Sequence[str]) -> np.ndarray:
        """Return which of the candidates answer."""
        return np.array([self.rows[int(row)] in gold for row in ranked.table.rows], bool)


@asynccontextmanager
async def open_conversation(material: Material, home: Path) -> AsyncIterator[OpenConversation]:
    """Open a conversation; the first time, store it through the public API."""
    # Without learning, the rows are those of the turns, in their order.
    async with AsyncMemory(settings=Settings(home=home, learn="off")) as memory:
        deps = (await memory.service()).search_deps
        if not await memory.admin.users():
            turns = [turn for turn in material.conversation.turns if turn.text.strip()]
            for session, group in groupby(turns, key=lambda turn: turn.session):
                text = list(group)
                await memory.remember([as_message(turn) for turn in text], user_id=USER, session_id=session)
        if deps.late is not None:
            await deps.late.flush(USER)
        yield OpenConversation(deps, await _rows(material, deps))


async def _rows(material: Material, deps: SearchDeps) -> dict[int, str]:
    """Return the id of the turn of each row; turns get their rows in the order they are stored."""
    _, rows = await deps.ledger.index_rows(USER, model=deps.embedder.model, after=0)
    messages = [turn.id for turn in material.conversation.turns if turn.text.strip()]
    return dict(zip(sorted(row.row for row in rows), messages, strict=True))


async def collect(material: Material, home: Path) -> list[RankingExample]:
    """Return an example for each question: the features of its candidates, and which of them answer."""
    examples = []
    async with open_conversation(material, home) as open_:
        for question in material.conversation.questions:
            gathered, table = await open_.ask(question.text)
            if not len(table):
                continue
            kind = "idle" if question.category == IDLE else "answered" if question.gold else "strange"
            examples.append(
                RankingExample(
                    group=f"{material.source} {'small ' if material.small else ''}{kind}",
                    table=table,
                    right=open_.right(gathered, question.gold),
                    answers=len(question.gold),
                    weight=WEIGHT_OF_SMALL if material.small else 1.0,
                )
            )
    return examples


def fit(examples: Sequence[RankingExample]) -> Blend:
    """Fit weights that rank answers first, scaled so that 0.5 is as typical of answers as of other candidates."""
    base, weights = fit_listwise([each for each in examples if each.right.any() or not each.answers])
    odds = [base + each.table @ weights for each in examples]
    shift, scale = platt(*balanced(examples, odds))
    return Blend(shift + scale * base, (scale * weights).astype(np.float32))


def report(folds: Sequence[int], examples: Sequence[Sequence[RankingExample]]) -> None:
    """How each set is ranked by weights fitted without the conversation asked."""
    scores: dict[str, list[tuple[float, float]]] = {}
    for fold in range(FOLDS):
        blend = fit([each for at, own in zip(folds, examples, strict=True) if at != fold for each in own])
        for each in (each for at, own in zip(folds, examples, strict=True) if at == fold for each in own):
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


def read_set(part: str) -> list[Material]:
    """Read one set of the command line, whole and cut small."""
    name, _, path = part.partition("=")
    folder = Path(path)
    if name == "own":
        conversations = list(read_own())
    elif name in ("dialogues", "assistant_talks"):
        conversations = list(read_dialogues(name))
    elif name == "friendsqa":
        files = sorted(folder.glob("friendsqa_*.json"))
        scenes = [scene for file in files for scene in json.loads(file.read_text(encoding="utf-8"))["data"]]
        conversations = list(read_friendsqa(scenes))
    elif name == "qmsum":
        files = sorted(folder.glob("**/ALL/*/*.json"))
        conversations = list(read_qmsum({file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}))
    else:
        conversations = load(name, folder, limit=0)
    return list(materials(name, conversations))


def collect_all(work: Sequence[Material]) -> list[list[RankingExample]]:
    """Ask the questions of all conversations, one process a processor."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        results = []
        for at, own in enumerate(pool.map(_collect, work), 1):
            results.append(own)
            if not at % 20:
                print(f"{at} of {len(work)} conversations", file=sys.stderr, flush=True)
        return results


def _collect(material: Material) -> list[RankingExample]:
    with tempfile.TemporaryDirectory() as home:
        return asyncio.run(collect(material, Path(home)))


def without_late(examples: Sequence[RankingExample]) -> list[RankingExample]:
    """The same questions without the columns of late interaction."""
    drop = [FEATURE_NAMES.index(name) for name in FEATURE_NAMES if "late" in name]
    return [replace(each, table=np.delete(each.table, drop, axis=1)) for each in examples]


def write_without_late(path: Path, examples: Sequence[RankingExample]) -> None:
    blend = fit(without_late(examples))
    kept = [name for name in FEATURE_NAMES if "late" not in name]
    weights = dict(zip(kept, blend.weights, strict=True))
    full = np.array([weights.get(name, 0.0) for name in FEATURE_NAMES], np.float32)
    write(path, Blend(blend.base, full))


def train(sets: Sequence[str], measured: Sequence[str]) -> None:
    """Read the sets, collect, report, fit, write."""
    work = [each for part in sets for each in read_set(part)]
    names = sorted({each.conversation.name for each in work})
    folds = [names.index(each.conversation.name) % FOLDS for each in work]
    collected = collect_all(work)
    examples = [each for own in collected for each in own]
    others = [
        each for own in collect_all([m for part in measured for m in read_set(part) if not m.small]) for each in own
    ]
    for title, change in (("with late interaction", list), ("without", without_late)):
        print(title)
        report(folds, [change(own) for own in collected])
        if others:
            report_on(fit(change(examples)), change(others))
    write(READ / "blend.toml", fit(examples))
    write_without_late(READ / "blend_without_late.toml", examples)


def report_on(blend: Blend, examples: Sequence[RankingExample]) -> None:
    """Print how questions are ranked that were not trained on."""
    scores: dict[str, list[tuple[float, float]]] = {}
    for each in examples:
        if each.answers:
            odds = each.table @ blend.weights
            scores.setdefault(each.group, []).append((recall_at(each, odds), ndcg_at(each, odds)))
    for group, pairs in sorted(scores.items()):
        recall, ndcg = np.mean(pairs, axis=0)
        print(f"  {group:28s} {len(pairs):5d} questions   R@10 {recall:.4f}   NDCG@10 {ndcg:.4f}   (not trained on)")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    at = arguments.index("--measure") if "--measure" in arguments else len(arguments)
    if not arguments[:at] or not all("=" in part for part in arguments[:at] + arguments[at + 1 :]):
        sys.exit(__doc__)
    train(arguments[:at], arguments[at + 1 :])
