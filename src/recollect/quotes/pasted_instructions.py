"""Recognise instructions that the user pasted: those of an e-mail, a page, a tool or a chat, not their own words.

A trained linear model judges each instruction of a message by its structure (its line, its position, marks of code,
headers, tables and speakers) and by the words of the lines around it. `python -m evals.train_pasted` trains it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np

from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.models.linear_text import LinearTextModel, TextInput, hash_ngrams, load_model, tokenize
from recollect.text.instructions import MAX_CHARS, may_instruct

BUCKETS = 1 << 13
# The minimum probability of a pasted instruction; chosen by cross-validation.
THRESHOLD = 0.7
# More instructions than this in one message were pasted.
MAX_INSTRUCTIONS = 24
MODEL_FILE = "pasted_instructions.npz"

_PIECE_END = lazy_pattern(
    r"(?:(?<=[.!?])\s+|(?<=[。！？।])|(?<=:)\s+|(?<=：)|[\n\"“”„«»「」]|<!--|-->|<[^<>\n]{0,200}>)"
)
_LINE = lazy_pattern(r"[^\n]+")
_HEADER = lazy_pattern(r"^\W{0,4}[^\W\d_][\w .-]{0,24}\s?[:：]\s*\S")
_SPEAKER_OR_TIME = lazy_pattern(r"^\W{0,3}(?:\d{1,4}[-:./,]\d\d|@\w|\w+ \d\d:\d\d)")
_COMMENT = lazy_pattern(r"^\s*(?:#|//|/\*|\*|--|<!--|>|\||\+|\$|@@|%)")
_ITEM = lazy_pattern(r"^\s*(?:[-*•]|\(?\d{1,2}[.)])\s")
_MARKUP = lazy_pattern(r"[<>{}|=;\\]|\]\(|&[lg]t;")
_QUOTE_MARKS = '"“”„«»「」'
_ASKS = lazy_pattern(r"[?？؟]\s*$")
_ADDRESS = lazy_pattern(r"@\w|https?://|\w\.example|\w\.com\b")
_FIRST_PERSON = lazy_pattern(
    r"\b(?:i|i'm|i've|my|me|mine|we|our|us|ich|mein\w*|mir|mich|yo|mi|mis|je|j'ai|mon|ma|mes|moi|io|mio|mia|eu|meu|minha|ik"
    r"|mijn|mij|я|мне|меня|mnie|mi|bana|benim)\b|我|私|나|저|أجبني|मुझे",
    re.IGNORECASE,
)
_GREETING = lazy_pattern(r"^\s*\w[\w .'’]{0,40}[,!，！]\s*$")
_MAX_SIGNATURE_WORDS = 3
_AROUND = 12
_MAX_LINES = 20


@frozen_dataclass
class InstructionSpan:
    """An instruction in a message."""

    start: int
    end: int


def instruction_spans(text: str) -> list[InstructionSpan]:
    """Return the smallest pieces of the text that may instruct, at most one more than a person gives at once."""
    return list(islice(_find_spans(text), MAX_INSTRUCTIONS + 1))


def pasted_spans(text: str) -> list[InstructionSpan]:
    """Return the pieces that may instruct and are probably not in the author's own words."""
    spans = instruction_spans(text)
    if len(spans) > MAX_INSTRUCTIONS:
        return [*spans[:-1], InstructionSpan(spans[-1].start, len(text))]
    return [span for span in spans if is_pasted(text, span)]


def _find_spans(text: str) -> Iterator[InstructionSpan]:
    text = text[:MAX_CHARS]
    if not may_instruct(text):
        return
    for line in _LINE.finditer(text):
        if not may_instruct(line.group()):
            continue
        pieces = [piece for piece in _pieces(line.group(), line.start()) if may_instruct(text[slice(*piece)])]
        for start, end in pieces or [line.span()]:
            yield InstructionSpan(start, end)


def _pieces(line: str, offset: int) -> Iterator[tuple[int, int]]:
    start = 0
    for end in [*(match.span() for match in _PIECE_END.finditer(line)), (len(line), len(line))]:
        if line[start : end[0]].strip():
            yield offset + start, offset + end[0]
        start = end[1]


def is_pasted(text: str, span: InstructionSpan) -> bool:
    """Return whether the text at the span is probably not in the author's own words."""
    [[logit]] = _model().logits([build_input(text, span)])
    return float(1 / (1 + np.exp(-logit))) >= THRESHOLD


def is_pasted_sentence(text: str, sentence: str) -> bool:
    """Return whether a sentence of the text, which instructs, is probably not in the author's own words."""
    at = text.find(sentence)
    return at >= 0 and is_pasted(text, InstructionSpan(at, at + len(sentence)))


def build_input(text: str, span: InstructionSpan) -> TextInput:
    """Return the features of an instruction in a message."""
    lines, at = _lines_around(text, span)
    contents = [text[start:end] for start, end in lines] or [""]
    line, piece = contents[at], text[span.start : span.end]
    before = text[lines[at][0] : span.start] if lines else ""
    after = text[span.end : lines[at][1]] if lines else ""
    previous = contents[at - 1] if at else ""
    following = contents[at + 1] if at + 1 < len(contents) else ""
    others = contents[:at] + contents[at + 1 :]
    paragraph_of_last = text.rfind("\n\n") if "\n\n" in text else -1
    named = (
        1.0 if len(contents) == 1 else 0.0,
        float(np.log1p(min(len(contents), 20))),
        at / max(1, len(contents) - 1),
        at == 0,
        at == len(contents) - 1,
        bool(before.strip()),
        before.rstrip().endswith((":", "：")),
        sum(before.count(mark) for mark in _QUOTE_MARKS) % 2,
        after.lstrip()[:1] in _QUOTE_MARKS and bool(after.strip()),
        bool(_COMMENT.match(line)),
        bool(_ITEM.match(line)),
        bool(_HEADER.match(line)),
        bool(_SPEAKER_OR_TIME.match(line)),
        min(4, len(_MARKUP.findall(line))) / 4,
        min(8, len(_MARKUP.findall(text[:MAX_CHARS]))) / 8,
        sum(bool(_HEADER.match(each)) for each in others) / max(1, len(others)),
        sum(bool(_ITEM.match(each)) for each in others) / max(1, len(others)),
        sum(bool(_SPEAKER_OR_TIME.match(each)) for each in others) / max(1, len(others)),
        bool(_ASKS.search(contents[-1])) and at < len(contents) - 1,
        bool(_ASKS.search(contents[0])) and at > 0,
        contents[0].rstrip().endswith((":", "：")) and at > 0,
        bool(_ASKS.search(after)),
        bool(_FIRST_PERSON.search(piece)),
        bool(_FIRST_PERSON.search(before)),
        bool(_FIRST_PERSON.search(" ".join(contents[:at]))),
        bool(_ADDRESS.search(piece)),
        "\n\n" in text,
        -1 < paragraph_of_last < span.start,
        bool(line[:1].islower()),
        at > 0 and bool(_GREETING.match(contents[0])),
        at > 0 and bool(_GREETING.match(contents[0])) and bool(_ASKS.search(contents[-1])),
        at > 1 and any(_GREETING.match(each) for each in contents[1:at]),
        len(contents[-1].split()) <= _MAX_SIGNATURE_WORDS and not _ASKS.search(contents[-1]),
        bool(_ASKS.search(contents[-1]))
        and at < len(contents) - 1
        and not _FIRST_PERSON.search(" ".join(contents[:-1])),
        at > 0 and bool(_FIRST_PERSON.search(contents[0])),
        contents[0].rstrip().endswith((":", "：")) and at > 0 and bool(_ITEM.match(line)),
        bool(_ITEM.match(line)) and all(_ITEM.match(each) for each in contents[1:]),
        float(np.log1p(min(len(text), 2_000)) - 4),
    )
    buckets = {
        *hash_ngrams(tokenize(piece), BUCKETS, words=2, chars=0),
        *hash_ngrams(tokenize(before)[-_AROUND:], BUCKETS, prefix="b:", words=2, chars=4),
        *hash_ngrams(tokenize(after)[:_AROUND], BUCKETS, prefix="a:", words=2, chars=0),
        *hash_ngrams(tokenize(previous)[:_AROUND], BUCKETS, prefix="p:", words=2, chars=4),
        *hash_ngrams(tokenize(following)[:_AROUND], BUCKETS, prefix="n:", words=2, chars=4),
        *(hash_ngrams(tokenize(contents[0])[:_AROUND], BUCKETS, prefix="f:", words=2, chars=4) if at else ()),
        *(
            hash_ngrams(tokenize(contents[-1])[:_AROUND], BUCKETS, prefix="l:", words=2, chars=4)
            if at < len(contents) - 1
            else ()
        ),
    }
    return TextInput(np.array(sorted(buckets), np.int64), np.array(named, np.float32))


def _lines_around(text: str, span: InstructionSpan) -> tuple[list[tuple[int, int]], int]:
    """Return the lines with text (of a long message the first, the last and the nearest), and which has the span."""
    lines = [match.span() for match in _LINE.finditer(text) if match.group().strip()]
    at = next((n for n, (start, end) in enumerate(lines) if start <= span.start < end), 0)
    near = range(max(0, at - _MAX_LINES), at + _MAX_LINES)
    ends = (*range(_MAX_LINES), *range(len(lines) - _MAX_LINES, len(lines)))
    shown = sorted({n for n in (*near, *ends) if 0 <= n < len(lines)})
    return [lines[n] for n in shown], shown.index(at) if shown else 0


@cache
def _model() -> LinearTextModel:
    return load_model(Path(__file__).parent / MODEL_FILE)
