"""Train the models that select what to remember without an LLM, and print held-out figures.

    python -m evals.train_selector [MORE.jsonl ...] [--check FILE.jsonl]

Reads `evals/data/memorable.jsonl`, any further files of the same shape ({"id", "source", "text", "keep": [{"text",
"category", "change", "key"}]}) and `evals/data/everyday.jsonl`, prints figures by five-fold cross-validation over
messages, trains on everything and writes `selector_cuts.npz` and `selector.npz` into the package. With --check, FILE
is only measured and nothing is written. Needs scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score

from recollect.models.linear_text import LinearTextModel, TextInput, save_model
from recollect.write import select
from recollect.write.select import StatementSpan
from recollect.write.sentences import Sentence, split_sentences

DATA = Path(__file__).parent / "data"
PACKAGE = Path(select.__file__).parent
FOLDS = 5
CUT_C, KEEP_C = 20.0, 3.0
STOP = frozenset(
    "i me my we our us the a an and or but so to of in on at for with is am are was were be been it its this that "
    "user users s m ve re ll d t just really".split()
)
Row = dict[str, Any]


@dataclass(slots=True)
class Labelled:
    """A sentence with its tokens, the kept stretch of each token (-1: none), and where stretches begin or end."""

    row: int
    sentence: Sentence
    spans: list[tuple[int, int]]
    tokens: list[str]
    stretch: list[int]
    edges: set[int]


def label(rows: Sequence[Row]) -> list[Labelled]:
    """Return every own sentence of the messages with its labels."""
    results: list[Labelled] = []
    for number, row in enumerate(rows):
        for sentence in split_sentences(row["text"]):
            spans = select.token_spans(sentence.text)
            tokens = [select.fold_token(sentence.text[a:b]) for a, b in spans]
            if not tokens:
                continue
            stretch, edges = [-1] * len(tokens), set()
            for which, stored in enumerate(row["keep"]):
                at = sentence.text.find(stored["text"])
                if at < 0:
                    continue
                end = at + len(stored["text"])
                inside = [n for n, (a, b) in enumerate(spans) if a >= at and b <= end]
                for n in inside:
                    stretch[n] = which
                if inside:
                    edges |= {inside[0], inside[-1] + 1} & set(range(1, len(tokens)))
            results.append(Labelled(number, sentence, spans, tokens, stretch, edges))
    return results


def matrix(inputs: Sequence[TextInput], buckets: int) -> sparse.csr_matrix:
    """Return the features of the inputs as the models see them."""
    counts = np.array([len(each.buckets) for each in inputs])
    values = np.repeat(1 / np.sqrt(counts), counts)
    ends = np.concatenate(([0], np.cumsum(counts)))
    hashed = sparse.csr_matrix(
        (values, np.concatenate([each.buckets for each in inputs]), ends), shape=(len(inputs), buckets)
    )
    dense = np.stack([each.dense for each in inputs])
    return sparse.hstack([hashed, sparse.csr_matrix(dense)]).tocsr() if dense.shape[1] else hashed


def fit(x: sparse.csr_matrix, y: np.ndarray, c: float) -> LogisticRegression:
    """Fit one logistic regression."""
    return LogisticRegression(C=c, solver="liblinear").fit(x, y)


def gaps(results: Sequence[Labelled]) -> tuple[sparse.csr_matrix, np.ndarray, list[tuple[int, int]]]:
    """Return features and labels of every gap between two tokens."""
    places = [(n, at) for n, each in enumerate(results) for at in range(1, len(each.tokens))]
    inputs = [select.cut_input(results[n].tokens, at) for n, at in places]
    labels = np.array([at in results[n].edges for n, at in places])
    return matrix(inputs, select.CUT_BUCKETS), labels, places


@dataclass(slots=True)
class Statements:
    """Statements with their features and the labelled sentences they lie in."""

    of: list[Labelled]
    statements: list[StatementSpan]
    x: sparse.csr_matrix


def statements(rows: Sequence[Row], results: Sequence[Labelled], cuts: dict[int, list[int]]) -> Statements:
    """Cut the sentences and return the features of all statements."""
    by_row: dict[int, list[int]] = defaultdict(list)
    for n, each in enumerate(results):
        by_row[each.row].append(n)
    of: list[Labelled] = []
    parts: list[StatementSpan] = []
    inputs: list[TextInput] = []
    for number, places in by_row.items():
        own: list[StatementSpan] = []
        for n in places:
            each = results[n]
            pieces = select.statements_between(each.sentence, each.spans, each.tokens, cuts.get(n, []))
            own += pieces
            of += [each] * len(pieces)
        if own:
            inputs += select.build_inputs(rows[number]["text"], [results[n].sentence for n in places], own)
            parts += own
    return Statements(of, parts, matrix(inputs, select.BUCKETS))


def selected_stretches(data: Statements) -> list[int]:
    """Return for each statement the kept stretch that holds half of its tokens, or -1."""
    result: list[int] = []
    for each, statement in zip(data.of, data.statements, strict=True):
        inside = each.stretch[statement.start : statement.end]
        stored = [which for which in inside if which >= 0]
        result.append(Counter(stored).most_common(1)[0][0] if 2 * len(stored) >= len(inside) and stored else -1)
    return result


def predicted_cuts(places: Sequence[tuple[int, int]], odds: np.ndarray) -> dict[int, list[int]]:
    """Return the cuts of each sentence."""
    cuts: dict[int, list[int]] = defaultdict(list)
    for (n, at), probability in zip(places, odds, strict=True):
        if probability >= select.CUT_THRESHOLD:
            cuts[n].append(at)
    return cuts


def words(text: str) -> set[str]:
    """Return the content words of a text."""
    return {word for word in re.findall(r"\w+", text.casefold()) if word not in STOP} or set(text.casefold())


def figures(rows: Sequence[Row], learned: dict[int, list[str]]) -> str:
    """Return message recall and precision, span recall and memory precision."""
    count: Counter[str] = Counter()
    for number, row in enumerate(rows):
        gold = [words(stored["text"]) for stored in row["keep"]]
        memories = [words(text) for text in learned.get(number, ())]
        count["gold"] += bool(gold)
        count["learned"] += bool(memories)
        count["both"] += bool(gold) and bool(memories)
        count["spans"] += len(gold)
        count["found"] += sum(any(len(g & m) >= 0.6 * len(g) for m in memories) for g in gold)
        count["memories"] += len(memories)
        count["right"] += sum(any(len(g & m) >= 0.5 * len(m) for g in gold) for m in memories)
    share = lambda a, b: count[a] / max(1, count[b])  # noqa: E731
    return (
        f"message recall {share('both', 'gold'):.3f} precision {share('both', 'learned'):.3f}  "
        f"span recall {share('found', 'spans'):.3f}  memory precision {share('right', 'memories'):.3f}"
    )


@dataclass(slots=True)
class Trained:
    """The fitted models."""

    cutter: LogisticRegression
    keep: LogisticRegression
    categories: list[LogisticRegression]
    changes: list[LogisticRegression]


def train(rows: Sequence[Row], *, only_keep: bool = False) -> Trained:
    """Train all models; statements are cut by out-of-fold predictions, as they are at run time."""
    results = label(rows)
    x, y, places = gaps(results)
    fold = np.array([results[n].row % FOLDS for n, _ in places])
    odds = np.zeros(len(y))
    for number in range(FOLDS):
        odds[fold == number] = fit(x[fold != number], y[fold != number], CUT_C).predict_proba(x[fold == number])[:, 1]
    data = statements(rows, results, predicted_cuts(places, odds))
    stretches = selected_stretches(data)
    keep = fit(data.x, np.array([which >= 0 for which in stretches]), KEEP_C)
    if only_keep:
        return Trained(fit(x, y, CUT_C), keep, [], [])
    stored = [n for n, which in enumerate(stretches) if which >= 0]
    labels = [rows[data.of[n].row]["keep"][stretches[n]] for n in stored]
    kinds = data.x[np.array(stored)]
    categories = [
        fit(kinds, np.array([each["category"] == name for each in labels]), 3.0) for name in select.CATEGORIES
    ]
    changes = [fit(kinds, np.array([each["change"] == name for each in labels]), KEEP_C) for name in select.CHANGES]
    return Trained(fit(x, y, CUT_C), keep, categories, changes)


def predict(rows: Sequence[Row], models: Trained) -> tuple[Statements, np.ndarray]:
    """Return the statements of messages and how likely each is kept."""
    results = label(rows)
    x, _, places = gaps(results)
    data = statements(rows, results, predicted_cuts(places, models.cutter.predict_proba(x)[:, 1]))
    return data, models.keep.predict_proba(data.x)[:, 1]


def report(name: str, rows: Sequence[Row], data: Statements, odds: np.ndarray) -> None:
    """Print the figures at several thresholds."""
    gold = [which >= 0 for which in selected_stretches(data)]
    print(f"{name}: {len(rows)} messages, average precision by statement {average_precision_score(gold, odds):.3f}")
    for threshold in (0.35, 0.4, 0.45, 0.5, 0.55):
        learned: dict[int, list[str]] = defaultdict(list)
        for each, statement, probability in zip(data.of, data.statements, odds, strict=True):
            if probability >= threshold:
                learned[each.row].append(statement.text)
        print(f"  threshold {threshold:.2f}  {figures(rows, learned)}")


def to_model(outputs: Sequence[str], fitted: Sequence[LogisticRegression], buckets: int) -> LinearTextModel:
    """Put fitted regressions together as one model."""
    weights = np.stack([each.coef_[0] for each in fitted], axis=1)
    bias = np.array([each.intercept_[0] for each in fitted])
    return LinearTextModel(tuple(outputs), weights[:buckets], weights[buckets:], bias)


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def main() -> None:
    """Train, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("more", nargs="*", type=Path)
    parser.add_argument("--check", type=Path, help="measure this file instead of writing the models")
    options = parser.parse_args()
    rows = [row for path in (DATA / "memorable.jsonl", *options.more) for row in read_rows(path)]
    rows += [
        {"text": text, "keep": keep}
        for talk in read_rows(DATA / "everyday.jsonl")
        for text, keep in zip(talk["messages"], talk["keep"], strict=True)
    ]
    if options.check:
        held_out = read_rows(options.check)
        report(f"trained on others, {options.check.name}", held_out, *predict(held_out, train(rows, only_keep=True)))
        return
    order = np.random.default_rng(0).permutation(len(rows))
    rows = [rows[at] for at in order]
    everything: list[tuple[Statements, np.ndarray]] = []
    for number in range(FOLDS):
        rest = [row for at, row in enumerate(rows) if at % FOLDS != number]
        mine = [row for at, row in enumerate(rows) if at % FOLDS == number]
        data, odds = predict(mine, train(rest, only_keep=True))
        report(f"fold {number}", mine, data, odds)
        everything.append((data, odds))
    models = train(rows)
    save_model(PACKAGE / "selector_cuts.npz", to_model(["cut"], [models.cutter], select.CUT_BUCKETS))
    kinds = [models.keep, *models.categories, *models.changes]
    save_model(PACKAGE / "selector.npz", to_model(select.OUTPUTS, kinds, select.BUCKETS))
    for name in ("selector_cuts.npz", "selector.npz"):
        print(f"{name}: {(PACKAGE / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
