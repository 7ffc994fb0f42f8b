"""Freshen: of two statements of one fact, the newer comes first.

"I have three interviews" and, weeks later, "I have five": a question about now wants the second. Whether a newer
candidate takes the place of an older one is judged by a few signals of the pair; their weights are in `freshen.toml`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from recollect.read.candidate import Candidate
from recollect.read.fuse import Blend, read_blend
from recollect.read.question import Question

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

PAIR_SIGNALS = (
    "gap", "alike", "coverage_kept", "coverage", "meaning_gained", "rank", "updates", "other_value", "now_asked",
    "past_asked", "value_asked",
)  # fmt: skip

# Beyond the first hits an order is no longer read as one.
LOOKED_AT = 10
_HEAD = 2_000
_UPDATES = re.compile(
    r"\b(?:now|just|recently|updated?|changed?|new|increased|decreased|improved|extended|moved|raised|reduced|"
    r"rescheduled|switched|instead|actually|no longer|reached|currently|latest|already|again|jetzt|neu\w{0,2}|geändert|"
    r"inzwischen|nicht mehr|maintenant|désormais|changé|nouveau|nouvelle|ne plus|ahora|nuev[oa]|cambi\w+|ya no|adesso|"
    r"ora|nuov[oa]|agora|nov[oa]|mudei|nu|nieuwe?|теперь|сейчас|больше не)\b|现在|改|今は|変更|이제",
    re.IGNORECASE,
)
_VALUES = re.compile(
    r"\d[\d,.:]*|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|once|twice|first|second|third|"
    r"fourth|fifth|(?:mon|tues|wednes|thurs|fri|satur|sun)days?)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Places (of the older, of the newer) of candidates that could be two statements of one fact, and their signals."""

    places: list[tuple[int, int]]
    table: Floats


@cache
def learned_pairs() -> Blend:
    """The weights in `freshen.toml`, which `evals/train_blend.py` writes."""
    text = (files("recollect.read") / "freshen.toml").read_text(encoding="utf-8")
    return read_blend(text, PAIR_SIGNALS)


def freshen(candidates: Sequence[Candidate], vectors: Floats, question: Question) -> list[Candidate]:
    """The candidates, best first, with newer statements moved before the ones they replace.

    `vectors` are those of the candidates, in their order.
    """
    first = list(candidates[:LOOKED_AT])
    pairs = pair_table(first, vectors, question)
    blend = learned_pairs()
    for (old, new), odds in zip(pairs.places, pairs.table @ blend.weights + blend.base, strict=True):
        if odds > 0 and first[new].score <= first[old].score:
            first[new].score = math.nextafter(first[old].score, math.inf)
            first[new].relevance = max(first[new].relevance, first[old].relevance)
            first[new].parts["fresher"] = 1.0
    return sorted(first, key=lambda each: -each.score) + list(candidates[LOOKED_AT:])


def pair_table(first: Sequence[Candidate], vectors: Floats, question: Question) -> Pairs:
    """The pairs worth a look: the newer ranks below the older, and both were said by the same one.

    They come in the order of the newer, so that of three statements the newest ends up first.
    """
    heads = [each.record.content[:_HEAD] for each in first]
    values = [frozenset(value.casefold().rstrip(".,:") for value in _VALUES.findall(head)) for head in heads]
    updates = [bool(_UPDATES.search(head)) for head in heads]
    alike = vectors[: len(first)] @ vectors[: len(first)].T
    asks_value = question.asks_when or question.asks_count
    places, rows = [], []
    by_age = sorted(range(len(first)), key=lambda at: _age(first[at]))
    for older, newer in ((old, new) for new in by_age for old in by_age):
        a, b = first[older], first[newer]
        if newer <= older or _age(a) >= _age(b) or _voice(a) != _voice(b):
            continue
        other = bool(values[older]) and bool(values[newer] - values[older])
        places.append((older, newer))
        rows.append((
            _logit(a.relevance) - _logit(b.relevance),
            float(alike[older, newer]),
            min(b.parts["coverage"] / max(a.parts["coverage"], 0.05), 1.5),
            b.parts["coverage"],
            b.parts["meaning"] - a.parts["meaning"],
            newer,
            updates[newer],
            other,
            question.of_the_present,
            question.of_the_past,
            asks_value and other,
        ))  # fmt: skip
    return Pairs(places, np.array(rows, np.float32).reshape(-1, len(PAIR_SIGNALS)))


def _age(candidate: Candidate) -> tuple[datetime, int]:
    record = candidate.record
    return (record.occurred_at or record.created_at, candidate.row)


def _voice(candidate: Candidate) -> tuple[object, object]:
    """Who says it: what the assistant says does not replace what the user said."""
    detail = candidate.record.detail
    return detail.get("role", "user"), detail.get("name")


def _logit(chance: float) -> float:
    chance = min(max(chance, 1e-6), 1 - 1e-6)
    return math.log(chance / (1 - chance))
