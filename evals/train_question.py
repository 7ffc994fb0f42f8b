"""Train the model that recognises a question without its mark (`read/question.npz`), and print held-out figures.

    python -m evals.train_question

Questions are the sentences of `evals/data` that end with a question mark, which the model does not see, those
labelled as questions there, and messages that need memory and state nothing that the selector would keep. The other
class are statements: the kept parts of messages, sentences that end with a full stop, and messages that change a
fact. `questions.jsonl` has hard cases of both. Figures are by five-fold cross-validation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from evals.fitting import fit_ngrams
from recollect.models.linear_text import LinearTextModel, TextInput, save_model
from recollect.read.question_model import BUCKETS, MODEL_FILE, OUTPUT, QUESTION_MARKS, question_features
from recollect.write.select import KEEP_THRESHOLD, score_statements
from recollect.write.sentences import split_sentences

DATA = Path(__file__).parent / "data"
FOLDS = 5
# The few hard cases count as much as this many sentences each.
HARD_WEIGHT = 8.0


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def _is_marked(text: str) -> bool:
    return text.rstrip().endswith(QUESTION_MARKS)


def questions() -> Iterator[str]:
    """Yield the questions of the data."""
    for row in (*_rows("changes"), *_rows("statement_pairs"), *_rows("update_messages")):
        if "question" in row:
            yield row["question"]
    yield from (row["text"] for row in _rows("questions") if row["question"])
    decisions = _rows("search_decision")
    yield from (row["text"] for row in decisions if row["search"] and not may_state(row["text"]))
    messages = [row["text"] for row in (*_rows("memorable"), *decisions)]
    yield from (each.text for text in messages for each in split_sentences(text) if _is_marked(each.text))


def may_state(text: str) -> bool:
    """Return whether the selector finds a statement worth remembering."""
    return any(each.confidence >= KEEP_THRESHOLD for each in score_statements(text))


def statements() -> Iterator[str]:
    """Yield the statements of the data."""
    texts = [row["text"] for row in _rows("questions") if not row["question"]]
    texts += [part["text"] for row in _rows("memorable") for part in row["keep"]]
    # People who write marks end a question with one, so their other sentences are none.
    texts += [
        each.text
        for row in _rows("memorable")
        for each in split_sentences(row["text"])
        if each.text.endswith((".", "!"))
    ]
    texts += [each["message"] for row in _rows("changes") for each in row["said"]]
    texts += [row[side] for row in _rows("statement_pairs") for side in ("older", "newer")]
    yield from (text for text in texts if not any(_is_marked(each.text) for each in split_sentences(text)))


def predict(inputs: Sequence[TextInput], weights: np.ndarray, bias: float) -> np.ndarray:
    """Return whether each input is a question."""
    return np.array([weights[each.buckets].sum() / len(each.buckets) ** 0.5 + bias >= 0 for each in inputs])


def main() -> None:
    """Print held-out figures, train on everything and write the model."""
    labelled = dict.fromkeys(statements(), False) | dict.fromkeys(questions(), True)
    texts = list(labelled)
    labels = np.array([labelled[text] for text in texts])
    hard = {row["text"] for row in _rows("questions")}
    importance = np.array([HARD_WEIGHT if text in hard else 1.0 for text in texts])
    inputs = [question_features(text) for text in texts]
    fold = np.array([crc32(text.casefold().encode()) % FOLDS for text in texts])
    predicted = np.zeros(len(texts), bool)
    for number in range(FOLDS):
        train, test = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        model = fit_ngrams([inputs[at] for at in train], labels[train], importance[train], BUCKETS)
        predicted[test] = predict([inputs[at] for at in test], *model)
    bare = np.array([label and not _is_marked(text) for text, label in labelled.items()])
    print(f"questions {labels.sum()}, of which without a mark {bare.sum()}; statements {(~labels).sum()}")
    print(
        f"held out: questions recognised {predicted[labels].mean():.3f}, without a mark {predicted[bare].mean():.3f}"
    )
    print(f"          statements taken for questions {predicted[~labels].mean():.3f}")
    weights, bias = fit_ngrams(inputs, labels, importance, BUCKETS)
    wrong = [text for text, label, guess in zip(texts, labels, predicted, strict=True) if label != guess]
    print("errors:", *wrong[:: max(1, len(wrong) // 20)], sep="\n  ")
    sparse = weights[:, None].astype(np.float32)
    empty = np.zeros((0, 1), np.float32)
    save_model(MODEL_FILE, LinearTextModel((OUTPUT,), sparse, empty, np.array([bias], np.float32)))


if __name__ == "__main__":
    main()
