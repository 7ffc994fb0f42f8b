"""Train the model that finds credentials in sentences (`write/credentials.npz`), and measure redaction.

    python -m evals.train_credentials [--measure-only] [--test] [--errors]

It reads `evals/data/credentials.jsonl`, written for this project: sentences, commands and settings in which
credentials are marked with [[ ]], and others that look alike and contain none; `shape` groups them. Lines whose
`split` is "test" are never trained on. It also trains on ordinary messages of the other data sets, which contain no
credentials. Each marked password is replaced by several random ones, so that the words around it are learned and not
the password.

It prints the share of credentials that `redact` removes and the share of other texts that it changes, for the lines
that were not trained on, by shape. The figures in docs/security.md are the output.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from recollect.aio.slices import run_at_once
from recollect.models.linear_text import LinearTextModel, save_model
from recollect.models.static_embedder import BUNDLED_TABLE, load_tokenizer
from recollect.write.credential_model import (
    BUCKETS,
    MODEL_FILE,
    OUTPUT,
    WORD_BUCKETS,
    feature_buckets,
    find_candidates,
    word_bucket,
)
from recollect.write.secret_rules import secret_rules

FOLDER = Path(__file__).parent / "data"
DATA = FOLDER / "credentials.jsonl"
# Messages of other data sets: the file and the fields with texts.
ORDINARY = {
    "memorable.jsonl": ("text",),
    "search_decision.jsonl": ("text",),
    "questions.jsonl": ("text",),
    "statement_pairs.jsonl": ("older", "newer"),
}
# The shapes that the model learns from; the rules find the others.
LEARNED = {"sentence", "pair", "pin", "otp", "recovery-codes", "passphrase", "env", "connection", "netrc"}
VARIANTS = 12
_DIGIT = re.compile(r"\d")
_MARKED = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
_EPOCHS, _RATE, _RIDGE = 250, 0.3, 2e-6
# A false alarm in ordinary text is worse than a miss.
_ORDINARY_WEIGHT = 2.0


@dataclass(frozen=True, slots=True)
class Example:
    """A text, the spans of its credentials, its shape, and whether it may be trained on."""

    text: str
    spans: tuple[tuple[int, int], ...]
    shape: str
    is_test: bool = False
    lang: str = "en"


def parse(marked: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return a text without its marks, and the spans that were marked."""
    text, spans, last = "", [], 0
    for match in _MARKED.finditer(marked):
        text += marked[last : match.start()]
        spans.append((len(text), len(text) + len(match[1])))
        text += match[1]
        last = match.end()
    return text + marked[last:], tuple(spans)


def read_examples(path: Path = DATA) -> list[Example]:
    """Read the marked texts."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        Example(*parse(row["text"]), row["shape"], row.get("split") == "test", row.get("lang", "en")) for row in rows
    ]


def read_ordinary() -> list[str]:
    """Read ordinary messages, without those that are among the marked texts since they tell a credential."""
    texts = []
    for name, fields in ORDINARY.items():
        for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            texts += [row[field] for field in fields]
    told = {example.text for example in read_examples() if example.spans}
    return [text for text in texts if text not in told]


def vary(example: Example, draw: random.Random, words: Sequence[str]) -> Iterator[Example]:
    """Yield the example, and copies with other credentials of the same strength, or with other digits."""
    yield example
    if not example.spans:
        if _DIGIT.search(example.text):
            for _ in range(VARIANTS // 2):
                yield replace(example, text=_DIGIT.sub(lambda _: draw.choice(string.digits), example.text))
        return
    for _ in range(0 if example.shape == "recovery-codes" else VARIANTS):
        text, spans, last = "", [], 0
        for start, end in example.spans:
            text += example.text[last:start]
            secret = " ".join(_replace_secret(each, draw, words) for each in example.text[start:end].split(" "))
            spans.append((len(text), len(text) + len(secret)))
            text, last = text + secret, end
        yield replace(example, text=text + example.text[last:], spans=tuple(spans))


def _replace_secret(secret: str, draw: random.Random, words: Sequence[str]) -> str:
    if secret.isdigit():
        return "".join(draw.choices(string.digits, k=len(secret)))
    word = draw.choice(words)
    if secret.isalpha():
        return word.capitalize() if secret[0].isupper() else word
    number = str(draw.randint(0, 9999))
    letters = "".join(draw.choices(string.ascii_letters + string.digits, k=draw.randint(6, 14)))
    forms = (
        word + number, f"{word.capitalize()}{number}!", f"{word}_{number}", letters + "7", f"{letters}#{number}",
        f"{word.capitalize()}-{draw.choice(words)}-{number}", word.replace("o", "0").replace("e", "3") + "1",
    )  # fmt: skip
    return draw.choice(forms)


def build_rows(examples: Sequence[Example]) -> tuple[list[np.ndarray], list[int]]:
    """Return the buckets and the label of each candidate; a candidate that is only part of a credential has none."""
    rows, labels = [], []
    for example in examples:
        for candidate in run_at_once(find_candidates(example.text))[1]:
            label = _label(candidate.start, candidate.end, example)
            if label is not None:
                rows.append(np.array(sorted(feature_buckets(candidate)), np.int64))
                labels.append(label)
    return rows, labels


def _label(start: int, end: int, example: Example) -> int | None:
    for first, last in example.spans:
        if start == first and end in (last, last + 1):
            return 1
        if start < last and end > first:
            # The same words with fewer or more of them around.
            return None if start >= first and end <= last else 0
    return 0


def fit(rows: Sequence[np.ndarray], labels: Sequence[int], weights: Sequence[float]) -> LinearTextModel:
    """Fit a logistic regression by Adam.

    The embedding of a plain word is a feature too. It is linear, so that its part is stored as one weight for each
    word of the embedding table: words that no training text has get a weight from words like them.
    """
    sizes = np.array([len(row) for row in rows])
    owners, places = np.repeat(np.arange(len(rows)), sizes), np.concatenate(rows)
    vectors = embedding_by_bucket()
    worded, words = owners[places >= BUCKETS], places[places >= BUCKETS] - BUCKETS
    embedded = vectors[words]
    scale = (1 / np.sqrt(sizes)).astype(np.float32)
    target, importance = np.array(labels, np.float32), np.array(weights, np.float32)
    importance /= importance.sum()
    size = BUCKETS + WORD_BUCKETS
    parameters = np.zeros(size + vectors.shape[1] + 1, np.float32)
    ridge = np.full(len(parameters), _RIDGE, np.float32)
    ridge[-1] = 0
    moment, second = np.zeros(len(parameters)), np.zeros(len(parameters))
    for step in range(1, _EPOCHS + 1):
        logits = np.bincount(owners, parameters[places], len(rows))
        logits += np.bincount(worded, embedded @ parameters[size:-1], len(rows))
        error = (1 / (1 + np.exp(-logits * scale - parameters[-1])) - target) * importance
        scaled = error * scale
        gradient = np.concatenate(
            [np.bincount(places, scaled[owners], size), embedded.T @ scaled[worded], [error.sum()]]
        )
        gradient = gradient.astype(np.float32) + ridge * parameters
        moment = 0.9 * moment + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        parameters -= _RATE * (moment / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    sparse = parameters[:size].astype(np.float32)
    sparse[BUCKETS:] += (vectors @ parameters[size:-1]).astype(np.float32)
    bias = parameters[-1:].astype(np.float32)
    return LinearTextModel((OUTPUT,), sparse[:, None], np.zeros((0, 1), np.float32), bias)


@cache
def embedding_by_bucket() -> np.ndarray:
    """Return the vector of each word bucket; where two words collide, that of the more frequent one."""
    vocabulary = load_tokenizer().get_vocab()
    vectors = np.load(BUNDLED_TABLE / "vectors.npy").astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-9
    by_bucket = np.zeros((WORD_BUCKETS, vectors.shape[1]), np.float32)
    # WordPiece vocabularies are sorted by frequency.
    for word, place in sorted(vocabulary.items(), key=lambda item: -item[1]):
        if word.isalpha():
            by_bucket[word_bucket(word)] = vectors[place]
    return by_bucket


def train() -> LinearTextModel:
    """Train on the marked texts that are not for tests, and on ordinary messages."""
    draw = random.Random(0)
    examples = read_examples()
    about = {example.text.split()[-1].strip(". ").lower() for example in examples if example.shape == "word-list"}
    words = sorted(secret_rules().mnemonic_words - about)
    rows: list[np.ndarray] = []
    labels: list[int] = []
    weights: list[float] = []
    for example in examples:
        if not example.is_test and (not example.spans or example.shape in LEARNED):
            varied = list(vary(example, draw, words))
            new_rows, new_labels = build_rows(varied)
            rows, labels = rows + new_rows, labels + new_labels
            # Copies count less than sentences of their own.
            weights += [_weight(example, len(varied))] * len(new_rows)
    ordinary_rows, ordinary_labels = build_rows([Example(text, (), "ordinary") for text in read_ordinary()])
    print(f"{len(rows)} candidates, {sum(labels)} of them credentials; {len(ordinary_rows)} in ordinary messages")
    weights += [_ORDINARY_WEIGHT] * len(ordinary_rows)
    return fit(rows + ordinary_rows, labels + ordinary_labels, weights)


def _weight(example: Example, copies: int) -> float:
    """Return the weight of each copy of an example.

    A plain word after "my password is" may be a password or be about it: a miss costs more than a false alarm there.
    """
    is_plain = any(example.text[start:end].isalpha() for start, end in example.spans)
    return 5.0 if is_plain else 1.0 if example.shape == "word-list" else 2.5 / copies**0.5


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts by shape: texts with credentials and those missed, texts without any and those changed."""

    credentials: Counter[str]
    missed: Counter[str]
    others: Counter[str]
    changed: Counter[str]
    errors: tuple[str, ...]

    @property
    def recall(self) -> float:
        return 1 - self.missed.total() / self.credentials.total()

    @property
    def false_alarms(self) -> float:
        return self.changed.total() / self.others.total()


def measure(examples: Sequence[Example]) -> Figures:
    """Redact each text and count what is left of credentials, and other texts that change."""
    from recollect.write.redact import redact

    credentials, missed, others, changed = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    errors = []
    for example in examples:
        output = redact(example.text).text
        if example.spans:
            credentials[example.shape] += 1
            if any(example.text[start:end] in output for start, end in example.spans):
                missed[example.shape] += 1
                errors.append(f"missed, {example.shape}: {output!r}")
        else:
            others[example.shape] += 1
            if output != example.text:
                changed[example.shape] += 1
                errors.append(f"false alarm, {example.shape}: {output!r}")
    return Figures(credentials, missed, others, changed, tuple(errors))


def report(title: str, figures: Figures, *, verbose: bool) -> None:
    """Print the figures."""
    print(f"{title}: {figures.recall:.1%} of {figures.credentials.total()} credentials redacted")
    for shape, count in figures.credentials.items():
        print(f"  {shape:18s} {count - figures.missed[shape]:4d} of {count}")
    print(f"  {figures.false_alarms:.1%} of {figures.others.total()} other texts changed: {dict(figures.changed)}")
    if verbose:
        print(*figures.errors, sep="\n")


def main() -> None:
    """Train, write the weights, and measure."""
    parser = argparse.ArgumentParser(description="Train write/credentials.npz and measure redaction.")
    parser.add_argument("--measure-only", action="store_true", help="measure the stored weights")
    parser.add_argument("--errors", action="store_true", help="print the errors on the training lines")
    parser.add_argument("--test", action="store_true", help="measure the lines that are not trained on")
    inputs = parser.parse_args()
    if not inputs.measure_only:
        save_model(MODEL_FILE, train())
        print(f"{MODEL_FILE.name}: {MODEL_FILE.stat().st_size:,} bytes")
    examples = read_examples()
    report("training", measure([each for each in examples if not each.is_test]), verbose=inputs.errors)
    ordinary = [Example(text, (), "ordinary") for text in read_ordinary()]
    unchanged = measure([*ordinary, Example("my PIN is 4821", ((10, 14),), "pin")])
    print(f"ordinary: {unchanged.changed.total()} of {len(ordinary)} changed")
    if inputs.errors:
        print(*unchanged.errors, sep="\n")
    if inputs.test:
        report("held out", measure([each for each in examples if each.is_test]), verbose=False)


if __name__ == "__main__":
    main()
