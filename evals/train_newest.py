"""Train the model that tells whether a newer statement replaces an older one (`read/prefer_newest.npz`).

    python -m evals.train_newest truth=truth_dev.json longmemeval=longmemeval_dev.json friendsqa=FOLDER

The weights of words come first, from labelled pairs of texts. Then every case is remembered and its question
searched (`evals/newest_cases.py`), and a small network learns from the signals of the pairs of candidates. It prints
figures for cases that were kept aside (five folds, whole cases), and writes the weights trained on all. Needs
scikit-learn.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import combinations, permutations, repeat
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier

from evals.newest_cases import (
    Searched,
    change_cases,
    filler_messages,
    pair_cases,
    pair_words,
    read_rows,
    search_cases,
    search_conversations,
    search_friendsqa,
    search_longmemeval,
    truth_cases,
    update_cases,
)
from recollect.models.static_embedder import DIMENSIONS, StaticEmbedder
from recollect.read.calibration import BUNDLED_CALIBRATION
from recollect.read.newest_model import (
    MAX_DEVIATIONS,
    MODEL_FILE,
    PAIR_FEATURES,
    WORD_ODDS_INDEX,
    NewestModel,
    compare_pairs,
    load_newest_model,
    parse_statement,
    save_newest_model,
)
from recollect.read.prefer_newest import MIN_ODDS, place_newer_first
from recollect.read.question import analyze_question

FOLDS = 5
# How much words count beside the named signals while their weights are fitted.
WORD_SCALE = 3.0
# A case of several texts counts as this many labelled pairs.
PAIRS_OF_A_CASE = 6.0
HIDDEN, EPOCHS, NETWORKS, DECAY = 32, 25, 5, 0.2
# Whether the newer of two roles replaces the older, and how much the pair counts; other pairs say nothing.
LABELS = {
    ("old", "now"): (1, 1.0), ("now", "old"): (0, 1.0), ("now", "other"): (0, 1.0), ("old", "other"): (0, 1.0),
    ("other", "other"): (0, 0.3),
}  # fmt: skip


def fold_of(name: str) -> int:
    """Return the fold of a case; all pairs of a case are in the same one."""
    return crc32(name.encode()) % FOLDS


# ------------------------------------------------------------ weights of words, from labelled pairs of texts
@dataclass(frozen=True, slots=True)
class TextPair:
    """Two texts and whether the newer replaces the older."""

    case: str
    older: str
    newer: str
    replaces: bool


def text_pairs(truth: Mapping[str, Any]) -> Iterator[TextPair]:
    """Yield labelled pairs, and the pairs of cases of changes and look-alikes."""
    for row in read_rows("statement_pairs.jsonl"):
        yield TextPair(row["id"], row["older"], row["newer"], row["label"] == "replaces")
    for row in read_rows("changes.jsonl"):
        for (at, older), (later, newer) in permutations(enumerate(row["said"]), 2):
            replaces = at < later and (older["role"], newer["role"]) == ("old", "now")
            if replaces or row["kind"] == "lookalike" or "other" in (older["role"], newer["role"]):
                for way in ("message", "fact"):
                    yield TextPair(row["id"], older[way], newer[way], replaces)
    for row in read_rows("everyday.jsonl"):
        yield from _pairs_of_talk(row)
    for case in truth["changes"]:
        yield from _pairs_of_changes(case)
    for case in truth["lookalikes"]:
        for older, newer in permutations(case["statements"], 2):
            yield TextPair(case["id"], older["text"], newer["text"], False)
            yield TextPair(case["id"], older["message"], newer["message"], False)


def _pairs_of_talk(row: Mapping[str, Any]) -> Iterator[TextPair]:
    messages = row["messages"]
    changed = {(old, now) for each in row["questions"] for old in each["old"] for now in each["now"]}
    answers = {at for each in row["questions"] for at in each["now"] if not each["old"]}
    for older, newer in combinations(range(len(messages)), 2):
        if (older, newer) in changed or older in answers:
            yield TextPair(row["id"], messages[older], messages[newer], (older, newer) in changed)


def _pairs_of_changes(case: Mapping[str, Any]) -> Iterator[TextPair]:
    slots: dict[str, list[tuple[int, str, str, bool]]] = defaultdict(list)
    for at, step in enumerate(case["steps"]):
        for claim in step["claims"]:
            changes = claim["change"] in ("correction", "ended")
            slots[claim["slot"]].append((at, step["message"], claim["content"], changes))
    for text in slots.values():
        for (at, *older, _), (later, *newer, changes) in combinations(text, 2):
            # There and back: the third statement says what the first did.
            if at != later and not (case["kind"] == "there and back" and (at, later) == (0, 2)):
                yield from (TextPair(case["id"], old, new, changes) for old in older for new in newer)
    for one, other in permutations(slots.values(), 2):
        yield from (TextPair(case["id"], old[2], new[2], False) for old in one for new in other if old[0] <= new[0])


def word_table(pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Return the words of pairs, a row a pair."""
    return np.array([pair_words(parse_statement(older), parse_statement(newer)) for older, newer in pairs])


class WordWeights:
    """Weights of words, fitted without some folds."""

    def __init__(self, pairs: Sequence[TextPair]) -> None:
        counts = Counter(each.case for each in pairs)
        texts = [(each.older, each.newer) for each in pairs]
        self._inputs = np.hstack([word_table(texts) * WORD_SCALE, _text_signals(texts)])
        self._labels = np.array([each.replaces for each in pairs])
        self._weights = np.array([min(PAIRS_OF_A_CASE / counts[each.case], 1.0) for each in pairs])
        self._folds = np.array([fold_of(each.case) for each in pairs])
        self._vocabulary: dict[frozenset[int], np.ndarray] = {}

    def without(self, *folds: int) -> np.ndarray:
        """Return the weights of words in each role, fitted on the other folds."""
        left_out = frozenset(folds)
        if left_out not in self._vocabulary:
            use = ~np.isin(self._folds, list(left_out))
            model = LogisticRegression(C=1.0, max_iter=3_000).fit(
                self._inputs[use], self._labels[use], sample_weight=self._weights[use]
            )
            self._vocabulary[left_out] = WORD_SCALE * model.coef_[0][: 3 * DIMENSIONS]
        return self._vocabulary[left_out]


def _text_signals(pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Return signals beside the words, so that the words need not stand in for them."""
    embedder = StaticEmbedder()
    older, newer = (asyncio.run(embedder.embed([pair[end] for pair in pairs])) for end in (0, 1))
    alike = BUNDLED_CALIBRATION.scale_all((older * newer).sum(1))
    rows = []
    for pair, value in zip(pairs, alike.tolist(), strict=True):
        first, second = map(parse_statement, pair)
        shared = len(first.terms & second.terms)
        numbers = bool(first.numbers) and bool(second.numbers) and first.numbers.isdisjoint(second.numbers)
        smaller, all_terms = min(len(first.terms), len(second.terms)), len(first.terms | second.terms)
        new = min(len(second.terms) - shared, 8) / 8
        share = (shared / max(smaller, 1), shared / max(all_terms, 1), min(shared, 4) / 4)
        rows.append((value, *share, new, numbers, first.length, second.length))
    return np.array(rows, float)


# ------------------------------------------------------------ the network over the signals of candidates
class Trainer:
    """The pairs of candidates of all cases."""

    def __init__(self, cases: Sequence[Searched], words: WordWeights) -> None:
        self.cases, self._words = cases, words
        tables = [
            compare_pairs(
                each.candidates,
                BUNDLED_CALIBRATION.scale_all(each.vectors @ each.vectors.T),
                analyze_question(each.question),
                result_count=each.visible_count,
            )
            if len(each.candidates) > 1
            else None
            for each in cases
        ]
        self.places = [table.pairs if table else [] for table in tables]
        self._signals = np.concatenate([table.features for table in tables if table])
        existing = [
            LABELS.get((each.roles[older], each.roles[newer]), (-1, 0.0))
            for each, places in zip(cases, self.places, strict=True)
            for older, newer in places
        ]
        self.labels, self._weights = (
            np.array([label for label, _ in existing]),
            np.array([weight for _, weight in existing]),
        )
        self._folds = np.repeat([fold_of(each.name) for each in cases], [len(places) for places in self.places])
        self._table = word_table(
            [
                (each.candidates[older].record.content, each.candidates[newer].record.content)
                for each, places in zip(cases, self.places, strict=True)
                for older, newer in places
            ]
        )

    def _with_words(self, left_out: Sequence[int]) -> np.ndarray:
        """Return the signals, with weights of words that saw neither the pair's fold nor those left out."""
        signals = self._signals.copy()
        for fold in range(FOLDS):
            own = self._folds == fold
            signals[own, WORD_ODDS_INDEX] = self._table[own] @ self._words.without(fold, *left_out)
        return signals

    def _fit(self, signals: np.ndarray, use: np.ndarray, words: np.ndarray) -> NewestModel:
        use = use & (self.labels >= 0)
        mean, deviation = signals[use].mean(0), signals[use].std(0) + 1e-6
        inputs = np.clip((signals[use] - mean) / deviation, -MAX_DEVIATIONS, MAX_DEVIATIONS)
        networks = [
            MLPClassifier(
                (HIDDEN,), alpha=DECAY, max_iter=EPOCHS, random_state=seed, learning_rate_init=2e-3, batch_size=128
            ).fit(inputs, self.labels[use], sample_weight=self._weights[use])
            for seed in range(NETWORKS)
        ]
        # The mean of several networks is one network with all their hidden units.
        return NewestModel(
            words=words.reshape(3, DIMENSIONS).T,
            mean=mean,
            deviation=deviation,
            hidden=np.concatenate([each.coefs_[0] for each in networks], axis=1),
            hidden_bias=np.concatenate([each.intercepts_[0] for each in networks]),
            output=np.concatenate([each.coefs_[1][:, 0] for each in networks]) / NETWORKS,
            output_bias=np.mean([each.intercepts_[1][0] for each in networks]),
        )

    def held_out(self) -> np.ndarray:
        """Return the odds of each pair by a model fitted without its case."""
        odds = np.zeros(len(self.labels))
        for fold in range(FOLDS):
            own, signals = self._folds == fold, self._with_words([fold])
            odds[own] = self._fit(signals, ~own, np.zeros(3 * DIMENSIONS)).odds(signals[own])
        return odds

    def fit(self) -> NewestModel:
        """Return the model fitted on everything."""
        return self._fit(self._with_words([]), np.ones(len(self.labels), bool), self._words.without())


def report(trainer: Trainer, odds: np.ndarray) -> None:
    """Print how often what holds now is first, before and after, with weights fitted without the case."""
    counts: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    start = 0
    for each, places in zip(trainer.cases, trainer.places, strict=True):
        own = odds[start : start + len(places)]
        start += len(places)
        if not each.visible_count:
            counts[each.group].append((False, False))
            continue
        moves = [place for place, value in zip(places, own, strict=True) if value > MIN_ODDS]
        order = place_newer_first(len(each.roles), [] if analyze_question(each.question).is_about_past else moves)
        counts[each.group].append((each.roles[0] == "now", each.roles[order[0]] == "now"))
    for group, rows in sorted(counts.items()):
        before, after = np.sum(rows, axis=0)
        print(
            f"  {group:30s} {len(rows):4d} cases   what holds is first: {before} before, {after} after   (held out)"
        )
    existing = trainer.labels >= 0
    print(f"  {existing.sum()} pairs, {trainer.labels[existing].sum()} replace; ", end="")
    print(f"AUROC {roc_auc_score(trainer.labels[existing], odds[existing]):.3f} (held out)")


def search_all(paths: Mapping[str, Path]) -> list[Searched]:
    """Return the candidates of every case, searched in one process per processor."""
    count = os.cpu_count() or 1
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        parts = pool.map(_search_part, repeat(paths), [slice(at, None, count) for at in range(count)])
        return [each for part in parts for each in part]


def _search_part(paths: Mapping[str, Path], part: slice) -> list[Searched]:
    return asyncio.run(_search_slice(read_truth(paths["truth"]), paths, part))


async def _search_slice(truth: Mapping[str, Any], paths: Mapping[str, Path], part: slice) -> list[Searched]:
    fillers = filler_messages(paths["longmemeval"])
    cases = [*truth_cases(truth), *change_cases(truth), *pair_cases(truth, fillers), *update_cases()]
    with tempfile.TemporaryDirectory() as home:
        searched = await search_cases(cases[part], Path(home) / "cases")
        for name in ("conversations", "everyday"):
            searched += await search_conversations(name, Path(home) / name, part)
        searched += await search_longmemeval(paths["longmemeval"], Path(home) / "longmemeval", part)
        searched += await search_friendsqa(paths["friendsqa"], Path(home) / "friendsqa", part)
    return searched


def read_truth(path: Path) -> dict[str, Any]:
    """Return the material of the truth evaluation."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def ensure_model() -> None:
    """Write a model that moves nothing if there is none to search with, or one of other signals."""
    try:
        if load_newest_model(MODEL_FILE).hidden.shape[0] == len(PAIR_FEATURES):
            return
    except (OSError, KeyError):
        pass
    count = len(PAIR_FEATURES)
    blank = {"mean": np.zeros(count), "deviation": np.ones(count), "hidden": np.zeros((count, 1))}
    ends = {"hidden_bias": np.zeros(1), "output": np.zeros(1), "output_bias": np.float32(-10)}
    save_newest_model(MODEL_FILE, NewestModel(words=np.zeros((DIMENSIONS, 3)), **blank, **ends))


def train(paths: Mapping[str, Path]) -> None:
    """Search, fit, report, write."""
    ensure_model()
    trainer = Trainer(search_all(paths), WordWeights(list(text_pairs(read_truth(paths["truth"])))))
    report(trainer, trainer.held_out())
    save_newest_model(MODEL_FILE, trainer.fit())


if __name__ == "__main__":
    named = {name: Path(path) for name, _, path in (part.partition("=") for part in sys.argv[1:])}
    if set(named) != {"truth", "longmemeval", "friendsqa"}:
        sys.exit(__doc__)
    train(named)
