"""Select what to remember without an LLM: a small trained model picks statements out of a message.

A message is split into its author's own sentences, a first model cuts sentences into statements, a second one says
for each statement how likely it is worth remembering, its category, and whether it corrects or ends something. The
statement is kept in the user's words. The weights are made by `evals/train_selector.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from recollect.models.linear_text import LinearTextModel, TextInput, hash_features, hash_ngrams, load_model, tokenize
from recollect.models.static_embedder import StaticEmbedder
from recollect.write.screening.others import ELIDED
from recollect.write.sentences import Sentence, split_sentences

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

CATEGORIES = ("identity", "preference", "constraint", "instruction", "fact", "event", "procedure")
CHANGES = ("correction", "ended")
OUTPUTS = ("keep", *CATEGORIES, *CHANGES)
CUT_BUCKETS = 1 << 15
BUCKETS = 1 << 16
# Probabilities from which on a sentence is cut and a statement kept; chosen by cross-validation when training.
CUT_THRESHOLD = 0.4
KEEP_THRESHOLD = 0.53
CHANGE_THRESHOLD = 0.6
# More statements than this in one message come from a list that was pasted.
MAX_STATEMENTS = 40

_FOLDER = Path(__file__).parent
_HAN = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"[{_HAN}]|[^\W{_HAN}]+(?:['’]\w+)*|[^\w\s]")
_FIRST_PERSON = re.compile(
    r"\b(?:i|i'm|i've|im|my|me|we|our|us|ich|mein\w*|wir|unser\w*|yo|mi|mis|je|j|mon|ma|mes|nous|io|mio|mia|eu|meu|minha|ik"
    r"|mijn)\b|我|私|僕",
    re.IGNORECASE,
)
_OPENING_MARKS = '$€£¥#@"“(„«'
_TRAILING = ",;:.-–—"
_CONJUNCTIONS = frozenset("and but so und aber y pero et mais e ma mas en maar".split())
_CONTEXT_TOKENS = 6
# UnreachedStore these, a longer message says nothing more about its statements.
_MANY_SENTENCES, _LONG_CHARS = 12, 1_500


@dataclass(frozen=True, slots=True)
class StatementSpan:
    """A stretch of a message, with its place in its sentence and the sentence's place in the message."""

    text: str
    sentence: Sentence
    tokens: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SelectedStatement:
    """A statement worth remembering, how sure that is, its category, and "new", "correction" or "ended"."""

    text: str
    sentence: str
    confidence: float
    category: str
    change: str


def score_statements(text: str) -> list[SelectedStatement]:
    """Return every statement of a message, in order, with how likely it is worth remembering."""
    author_sentences = split_sentences(text)
    if not (statements := [statement for sentence in author_sentences for statement in cut(sentence)]):
        return []
    logits = _selector().logits(build_inputs(text, author_sentences, statements))
    return [_selected(statement, row) for statement, row in zip(statements, logits, strict=True)]


def _selected(statement: StatementSpan, logits: Floats) -> SelectedStatement:
    odds = dict(zip(OUTPUTS, logits.tolist(), strict=True))
    change = max(CHANGES, key=lambda name: odds[name])
    return SelectedStatement(
        text=statement.text,
        sentence=statement.sentence.text,
        confidence=_probability(odds["keep"]),
        category=max(CATEGORIES, key=lambda name: odds[name]),
        change=change if _probability(odds[change]) >= CHANGE_THRESHOLD else "new",
    )


def _probability(logit: float) -> float:
    return float(1 / (1 + np.exp(-logit)))


# Cutting sentences -------------------------------------------------------------------------------------------------


def cut(sentence: Sentence) -> list[StatementSpan]:
    """Split a sentence into statements where the cutting model sees a boundary."""
    spans = token_spans(sentence.text)
    tokens = [fold_token(sentence.text[start:end]) for start, end in spans]
    if len(tokens) < 2:
        return statements_between(sentence, spans, tokens, [])
    logits = _cutter().logits([cut_input(tokens, at) for at in range(1, len(tokens))])[:, 0]
    cuts = [at for at, logit in enumerate(logits.tolist(), 1) if _probability(logit) >= CUT_THRESHOLD]
    cuts = [at for at in cuts if not (spans[at - 1][1] == spans[at][0] and "-" in tokens[at - 1 : at + 1])]
    return statements_between(sentence, spans, tokens, cuts)


def statements_between(
    sentence: Sentence, spans: Sequence[tuple[int, int]], tokens: Sequence[str], cuts: Sequence[int]
) -> list[StatementSpan]:
    """Return the stretches between the cuts, without punctuation around them."""
    statements: list[StatementSpan] = []
    edges = [0, *cuts, len(tokens)]
    for first, last in pairwise(edges):
        start, end = first, last
        while start < end and not tokens[start][0].isalnum() and tokens[start] not in _OPENING_MARKS:
            start += 1
        while start < end - 1 and tokens[start] in _CONJUNCTIONS:
            start += 1
        while end > start and (tokens[end - 1] in _TRAILING or tokens[end - 1] in _CONJUNCTIONS):
            end -= 1
        if any(token[0].isalnum() for token in tokens[start:end]):
            text = sentence.text[spans[start][0] : spans[end - 1][1]]
            statements.append(StatementSpan(text, sentence, tuple(tokens), start, end))
    return statements


def token_spans(text: str) -> list[tuple[int, int]]:
    """Return where the words and marks of a text stand."""
    return [match.span() for match in _TOKEN.finditer(text)]


def fold_token(token: str) -> str:
    """Return a token as features see it."""
    return re.sub(r"\d", "0", token.casefold().replace("’", "'"))


def cut_input(tokens: Sequence[str], at: int) -> TextInput:
    """Return the features of the gap before token `at`: the words around it and how far the ends are."""
    count = len(tokens)
    around = {
        off: tokens[at + off] if 0 <= at + off < count else "\x02" if at + off < 0 else "\x03" for off in range(-4, 4)
    }
    left, right = around[-1], around[0]
    features = [f"{off}:{token}" for off, token in around.items()]
    features += [
        f"a:{left}|{right}",
        f"b:{around[-2]}|{left}",
        f"c:{right}|{around[1]}",
        f"d:{left}|{right}|{around[1]}",
        f"e:{around[-2]}|{left}|{right}",
        f"f:{right}|{around[1]}|{around[2]}",
        f"L{min(at, 8)}",
        f"R{min(count - at, 8)}",
        f"p:{left if not left[:1].isalnum() else 'w'}|{right if not right[:1].isalnum() else 'w'}",
        f"q:{tokens[-1]}|{right}",
    ]
    return TextInput(hash_features(features, CUT_BUCKETS), np.zeros(0, np.float32))


# Scoring statements ------------------------------------------------------------------------------------------------


def build_inputs(
    text: str, author_sentences: Sequence[Sentence], statements: Sequence[StatementSpan]
) -> list[TextInput]:
    """Return the features of each statement of a message."""
    embedded = _embedder().encode([*(each.text for each in statements), *(each.text for each in author_sentences)])
    vectors = embedded[: len(statements)]
    sentence_vectors = dict(zip(map(id, author_sentences), embedded[len(statements) :], strict=True))
    places = {id(each): at for at, each in enumerate(author_sentences)}
    message = _message_features(text)
    first = tokenize(author_sentences[0].text)[:8]
    inputs: list[TextInput] = []
    for statement, vector in zip(statements, vectors, strict=True):
        place = places[id(statement.sentence)]
        before = tokenize(author_sentences[place - 1].text)[-10:] if place else []
        tokens, start, end = statement.tokens, statement.start, statement.end
        buckets = {
            *hash_ngrams(tokenize(statement.text), BUCKETS),
            *hash_ngrams(tokens[max(0, start - _CONTEXT_TOKENS) : start], BUCKETS, prefix="l:", words=2, chars=0),
            *hash_ngrams(tokens[end : end + _CONTEXT_TOKENS], BUCKETS, prefix="r:", words=2, chars=0),
            *hash_ngrams(before, BUCKETS, prefix="p:", words=2, chars=0),
            *(hash_ngrams(first, BUCKETS, prefix="f:", words=2, chars=0) if place else ()),
        }
        after = author_sentences[place + 1].is_question if place + 1 < len(author_sentences) else False
        named = (
            *(_is_question(statement.text), statement.sentence.is_question),
            *(bool(_FIRST_PERSON.search(each)) for each in (statement.text, statement.sentence.text)),
            *(np.log1p(end - start) - 2, start == 0, end >= len(tokens) - 1, np.log1p(len(tokens)) - 2.5),
            *(place == 0, place == len(author_sentences) - 1, np.log1p(min(len(author_sentences), _MANY_SENTENCES))),
            *(bool(statement.sentence.item), ELIDED in statement.sentence.text),
            *(any(map(str.isdigit, statement.text)), after),
            *message,
        )
        dense = np.concatenate([vector * 2, sentence_vectors[id(statement.sentence)], np.array(named, np.float32)])
        inputs.append(TextInput(np.array(sorted(buckets), np.int64), dense.astype(np.float32)))
    return inputs


def _message_features(text: str) -> tuple[float, ...]:
    return (
        float(np.log1p(min(len(text), _LONG_CHARS)) - 4),
        float(text.count("\n") > 2),
        float('"' in text or "“" in text),
        float(":" in text),
    )


def _is_question(text: str) -> bool:
    return text.rstrip(" \"'”’)]").endswith(("?", "？"))


@cache
def _cutter() -> LinearTextModel:
    return load_model(_FOLDER / "selector_cuts.npz")


@cache
def _selector() -> LinearTextModel:
    return load_model(_FOLDER / "selector.npz")


@cache
def _embedder() -> StaticEmbedder:
    return StaticEmbedder()
