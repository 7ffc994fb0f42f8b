"""Train the model that recognises pasted instructions, and print held-out figures.

    python -m evals.train_pasted [--check]

Reads `evals/data/pasted_instructions.jsonl`: messages with the stretches that were pasted and the instructions in
them, a third of which ("test") is never trained on. The training part is enlarged by exchanging instructions between
messages, so that the model learns places before words, and by the own instructions of `memorable.jsonl`. Prints
five-fold cross-validation over messages and the figures of the whole recognition (structure, cues and model) on the
test part. With --check nothing is written. Needs scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from evals.train_selector import matrix, to_model
from recollect.models.linear_text import save_model
from recollect.quotes import pasted_instructions
from recollect.quotes.pasted_instructions import BUCKETS, THRESHOLD, InstructionSpan, build_input
from recollect.quotes.quoted_text import author_text

FOLDER = Path(__file__).parent / "data"
DATA, MEMORABLE = FOLDER / "pasted_instructions.jsonl", FOLDER / "memorable.jsonl"
PACKAGE = Path(pasted_instructions.__file__).parent
FOLDS, EXCHANGES, C = 5, 6, 3.0
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """An instruction in a message; `group` is the number of the message in the data, -1 for other data."""

    text: str
    span: InstructionSpan
    is_pasted: bool
    group: int


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def samples(rows: Sequence[Row], own_instructions: Sequence[str]) -> list[Sample]:
    """Return the instructions of the messages, each also with the words of other instructions in its place."""
    chance = random.Random(0)
    words: dict[bool, list[str]] = {True: list(own_instructions), False: []}
    for each in (each for row in rows for each in row["instructions"]):
        words[each["own"]].append(each["text"])
    result = []
    for group, row in enumerate(rows):
        for each in row["instructions"]:
            at = row["text"].index(each["text"])
            for content in [each["text"], *chance.sample(words[each["own"]], EXCHANGES)]:
                text = row["text"][:at] + content + row["text"][at + len(each["text"]) :]
                result.append(Sample(text, InstructionSpan(at, at + len(content)), not each["own"], group))
    return result


def own_samples() -> list[Sample]:
    """Return the instructions that users of the selector's training messages gave."""
    return [
        Sample(row["text"], InstructionSpan(at, at + len(each["text"])), is_pasted=False, group=-1)
        for row in read_rows(MEMORABLE)
        for each in row["keep"]
        if each["category"] == "instruction" and (at := row["text"].find(each["text"])) >= 0
    ]


def fit(rows: Sequence[Sample]) -> LogisticRegression:
    """Fit the regression; both classes count the same."""
    x = matrix([build_input(each.text, each.span) for each in rows], BUCKETS)
    model = LogisticRegression(C=C, solver="liblinear", class_weight="balanced")
    return model.fit(x, [each.is_pasted for each in rows])


def cross_validate(rows: Sequence[Row], extra: Sequence[Sample], own: Sequence[str]) -> str:
    """Return the recall and the false alarms of the model alone on messages that it was not trained on."""
    everything = samples(rows, own)
    counts = np.zeros((2, 2), int)
    for fold in range(FOLDS):
        model = fit([*(each for each in everything if each.group % FOLDS != fold), *extra])
        for group, row in enumerate(rows):
            if group % FOLDS != fold:
                continue
            for each in row["instructions"]:
                at = row["text"].index(each["text"])
                features = matrix([build_input(row["text"], InstructionSpan(at, at + len(each["text"])))], BUCKETS)
                pasted = model.predict_proba(features)[0, 1] >= THRESHOLD
                counts[int(each["own"]), int(pasted)] += 1
    return (
        f"pasted found {counts[0, 1]} of {counts[0].sum()}, own taken for pasted {counts[1, 1]} of {counts[1].sum()}"
    )


def measure(rows: Sequence[Row]) -> str:
    """Return the recall and the false alarms of the whole recognition, as `author_text` applies it."""
    found = pasted = lost = own = 0
    for row in rows:
        words = " ".join(author_text(row["text"]).split())
        for each in row["instructions"]:
            is_active = " ".join(each["text"].split()) in words
            own, lost = own + each["own"], lost + (each["own"] and not is_active)
            pasted, found = pasted + (not each["own"]), found + (not each["own"] and not is_active)
    return f"pasted found {found} of {pasted}, own taken for pasted {lost} of {own}"


def main() -> None:
    """Train, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only print the figures of the stored model")
    rows = read_rows(DATA)
    train, test = ([row for row in rows if row["split"] == split] for split in ("train", "test"))
    if not parser.parse_args().check:
        extra = own_samples()
        own = [each.text[each.span.start : each.span.end] for each in extra]
        print("model alone, cross-validated:", cross_validate(train, extra, own))
        model = to_model(["pasted"], [fit([*samples(train, own), *extra])], BUCKETS)
        save_model(PACKAGE / pasted_instructions.MODEL_FILE, model)
    print("train:", measure(train))
    print("test:", measure(test))


if __name__ == "__main__":
    main()
