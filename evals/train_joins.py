"""Train the model that joins a statement with the one before it, and print held-out figures.

    python -m evals.train_joins

Reads `evals/data/statement_joins.jsonl`: a statement that the selector keeps, the one before it in the message, and
whether the reader needs that one to know what is meant. Figures are by five-fold cross-validation.
Writes `selector_joins.npz` into the package.
"""

from __future__ import annotations

import json
from pathlib import Path
from zlib import crc32

import numpy as np

from evals.fitting import fit_ngrams
from recollect.models.linear_text import LinearTextModel, save_model
from recollect.write import select

DATA = Path(__file__).parent / "data" / "statement_joins.jsonl"
FOLDS = 5


def main() -> None:
    """Print held-out figures, train on everything and write the model."""
    rows = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    labels = np.array([row["join"] for row in rows])
    inputs = [select.join_input(row["before"], row["text"], same_sentence=row["same_sentence"]) for row in rows]
    fold = np.array([crc32(row["before"].encode()) % FOLDS for row in rows])
    even = np.ones(len(rows))
    odds = np.zeros(len(rows))
    for number in range(FOLDS):
        train = np.flatnonzero(fold != number)
        weights, bias = fit_ngrams([inputs[at] for at in train], labels[train], even[train], select.JOIN_BUCKETS)
        for at in np.flatnonzero(fold == number):
            buckets = inputs[at].buckets
            odds[at] = 1 / (1 + np.exp(-(weights[buckets].sum() / len(buckets) ** 0.5 + bias)))
    print(f"{len(rows)} pairs, {labels.sum()} to join")
    for threshold in (0.5, 0.65, select.JOIN_THRESHOLD, 0.85):
        joined = odds >= threshold
        right, share = labels[joined].mean(), joined[labels].mean()
        print(f"{threshold:.2f}  joined rightly {right:.3f}  of those to join {share:.3f}")
    weights, bias = fit_ngrams(inputs, labels, even, select.JOIN_BUCKETS)
    model = LinearTextModel(
        ("join",), weights[:, None].astype(np.float32), np.zeros((0, 1), np.float32), np.array([bias], np.float32)
    )
    save_model(Path(select.__file__).parent / "selector_joins.npz", model)


if __name__ == "__main__":
    main()
