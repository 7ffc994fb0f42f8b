"""Train the model that recognises standing instructions (`models/instruction.npz`), and print held-out figures.

    python -m evals.train_instruction

Sentences are labelled by the stretches of `evals/data` whose category is an instruction. Of a turn in
`assistant_talks.jsonl` only the turn is labelled: the sentence that a first model finds most likely is taken for the
instruction. Figures are by five-fold cross-validation; those of the talks are by turn and by the first model, which
has not seen them. `instructions.jsonl` has hard cases.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from evals.fitting import fit_ngrams
from recollect.models.instruction_model import BUCKETS, MIN_ODDS, MODEL_FILE, OUTPUT, sentence_features, split
from recollect.models.linear_text import LinearTextModel, TextInput, save_model, tokenize

DATA = Path(__file__).parent / "data"
FOLDS = 5
# A stretch is in the sentence that has this share of its words.
MIN_SHARED_WORDS = 0.7
# The few hard cases count as much as this many sentences each.
HARD_WEIGHT = 8.0
Model = tuple[np.ndarray, float]


def read_rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a data file."""
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def labelled_messages() -> Iterator[tuple[str, list[str]]]:
    """Yield each message with the instructions in it."""
    for row in read_rows("memorable"):
        yield row["text"], [part["text"] for part in row["keep"] if part["category"] == "instruction"]
    for row in read_rows("everyday"):
        for message, keep in zip(row["messages"], row["keep"], strict=True):
            yield message, [part["text"] for part in keep if part["category"] == "instruction"]
    for row in read_rows("pasted_instructions"):
        yield row["text"], [each["text"] for each in row["instructions"]]
    for row in read_rows("changes"):
        for each in row["said"]:
            yield (
                each["message"],
                [each["message"]] if row["kind"] == "instruction" and each["role"] != "other" else [],
            )
    for row in read_rows("instructions"):
        yield row["text"], [row["text"]] if row["instruction"] else []
    for dialogue in read_rows("dialogues"):
        for session in dialogue["sessions"]:
            yield from ((text, []) for speaker, text in session["turns"] if speaker != "assistant")


def labelled_turns() -> Iterator[tuple[str, bool]]:
    """Yield the user's turns of the talks, with whether each contains an instruction."""
    for talk in read_rows("assistant_talks"):
        # The first turn of the evidence has the instruction, the others what it applies to.
        marked = {tuple(each["evidence"][0]) for each in talk["questions"] if each["kind"] == "instruction"}
        for number, session in enumerate(talk["sessions"]):
            for place, (speaker, text) in enumerate(session["turns"]):
                if speaker == "user":
                    yield text, (number, place) in marked


def contains(sentence: str, stretch: str) -> bool:
    """Return whether most words of a stretch are in the sentence."""
    words = set(tokenize(stretch))
    return len(words & set(tokenize(sentence))) >= MIN_SHARED_WORDS * len(words)


def fit(labels: dict[str, bool]) -> Model:
    """Return the weights and the bias."""
    values = np.array(list(labels.values()))
    hard = {row["text"] for row in read_rows("instructions")}
    importance = np.array([HARD_WEIGHT if text in hard else 1.0 for text in labels])
    return fit_ngrams([sentence_features(text) for text in labels], values, importance, BUCKETS)


def odds(model: Model, inputs: Sequence[TextInput]) -> np.ndarray:
    """Return the log-odds of sentences."""
    weights, bias = model
    return np.array([weights[each.buckets].sum() / len(each.buckets) ** 0.5 + bias for each in inputs])


def main() -> None:
    """Print held-out figures, train on everything and write the model."""
    labels: dict[str, bool] = {}
    for message, stretches in labelled_messages():
        for sentence in split(message):
            labels[sentence] = labels.get(sentence, False) or any(contains(sentence, each) for each in stretches)
    report(labels)
    turns = [(text, split(text), is_marked) for text, is_marked in labelled_turns()]
    first = fit(labels)
    hits = {True: [0, 0], False: [0, 0]}
    for _, sentences, is_marked in turns:
        values = odds(first, [sentence_features(each) for each in sentences])
        hits[is_marked][0] += bool(values.max() >= MIN_ODDS)
        hits[is_marked][1] += 1
        for at, sentence in enumerate(sentences):
            labels.setdefault(sentence, is_marked and at == int(values.argmax()))
    print(f"turns of talks that the first model finds: {describe(hits)}")
    weights, bias = fit(labels)
    empty = np.zeros((0, 1), np.float32)
    save_model(
        MODEL_FILE,
        LinearTextModel((OUTPUT,), weights[:, None].astype(np.float32), empty, np.array([bias], np.float32)),
    )


def report(labels: dict[str, bool]) -> None:
    """Print how many sentences are recognised by models that have not seen them."""
    fold = {text: crc32(text.casefold().encode()) % FOLDS for text in labels}
    right = {True: [0, 0], False: [0, 0]}
    for number in range(FOLDS):
        model = fit({text: label for text, label in labels.items() if fold[text] != number})
        held_out = [text for text in labels if fold[text] == number]
        for text, value in zip(held_out, odds(model, [sentence_features(each) for each in held_out]), strict=True):
            right[labels[text]][0] += bool(value >= MIN_ODDS)
            right[labels[text]][1] += 1
    print(f"held out sentences: {describe(right)}")


def describe(counts: dict[bool, list[int]]) -> str:
    """Return how many with an instruction were found, and how many others were taken for one."""
    (found, marked), (mistaken, others) = counts[True], counts[False]
    return f"with an instruction {found} of {marked}, others {mistaken} of {others}"


if __name__ == "__main__":
    main()
