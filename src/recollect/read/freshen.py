"""Freshen: of two statements of one fact, the newer comes first.

"I have three interviews" and, weeks later, "I have five": a question about now wants the second. Whether a newer
candidate takes the place of an older one is judged by a few signals of the pair; their weights are in `freshen.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from recollect.model.memory import Category
from recollect.read.candidate import Candidate
from recollect.read.fuse import Blend, logit, read_blend
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
# Texts less alike than this speak of different things.
_ALIKE = 0.4
# All of these see text in lower case. Words are found in sets, which takes a tenth of one expression for all of them.
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"\d[\d,.:]*")
_VALUES = frozenset(
    "one two three four five six seven eight nine ten eleven twelve once twice "
    "first second third fourth fifth".split()
) | {f"{day}day{plural}" for day in "mon tues wednes thurs fri satur sun".split() for plural in ("", "s")}
_UPDATES = frozenset(
    "now just recently update updated change changed new increased decreased improved extended moved raised reduced "
    "rescheduled switched instead actually reached currently latest already again "
    "jetzt geändert inzwischen maintenant désormais changé nouveau nouvelle ahora nuevo nueva adesso ora nuovo nuova "
    "agora novo nova mudei nu nieuw nieuwe теперь сейчас".split()
)
_UPDATE_PHRASES = re.compile(
    r"\b(?:no longer|neu\w{0,2}|nicht mehr|ne plus|cambi\w+|ya no|больше не)\b|现在|改|今は|変更|이제"
)
# One of them is in whatever the expression finds.
_UPDATE_HINTS = (
    "no longer", "neu", "nicht mehr", "ne plus", "cambi", "ya no", "больше не", "现在", "改", "今は", "変更", "이제",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pairs:
    """Places (of the older, of the newer) of candidates that may be statements of one fact, and their signals."""

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
    if question.of_the_past:
        # Whoever asks how it was before does not want what holds now.
        return list(candidates)
    first = list(candidates[:LOOKED_AT])
    pairs = pair_table(first, vectors, question)
    blend = learned_pairs()
    for (old, new), odds in zip(pairs.places, pairs.table @ blend.weights + blend.base, strict=True):
        if odds > 0 and first[new].score <= first[old].score:
            first[new].score = first[old].score
            first[new].parts["fresher"] = 1.0
    return sorted(first, key=_place) + list(candidates[LOOKED_AT:])


def pair_table(first: Sequence[Candidate], vectors: Floats, question: Question) -> Pairs:
    """The pairs worth a look: the newer ranks below the older, and both were said by the same one.

    They come in the order of the newer, so that of three statements the newest ends up first.
    """
    alike = vectors[: len(first)] @ vectors[: len(first)].T
    places, rows = [], []
    # Few pairs are alike at all, so nothing else is looked at for the others.
    close = np.argwhere(np.triu(alike >= _ALIKE, 1)).tolist()
    ages = [_age(each) for each in first] if close else []
    said: dict[int, _Said] = {}
    asks_value = question.asks_when or question.asks_count
    for older, newer in sorted(close, key=lambda pair: (ages[pair[1]], pair[0])):
        a, b = first[older], first[newer]
        if ages[older] >= ages[newer] or _voice(a) != _voice(b) or not (_states(a) and _states(b)):
            continue
        for at in (older, newer):
            if at not in said:
                said[at] = _listen(first[at].record.content)
        other = bool(said[older].values) and bool(said[newer].values - said[older].values)
        places.append((older, newer))
        rows.append((
            logit(a.relevance) - logit(b.relevance),
            float(alike[older, newer]),
            min(b.parts["coverage"] / max(a.parts["coverage"], 0.05), 1.5),
            b.parts["coverage"],
            b.parts["meaning"] - a.parts["meaning"],
            newer,
            said[newer].updates,
            other,
            question.of_the_present,
            question.of_the_past,
            asks_value and other,
        ))  # fmt: skip
    return Pairs(places, np.array(rows, np.float32).reshape(-1, len(PAIR_SIGNALS)))


@dataclass(frozen=True, slots=True)
class _Said:
    """What a text says that can change: its numbers and days, and whether something did."""

    values: frozenset[str]
    updates: bool


def _listen(text: str) -> _Said:
    text = text[:_HEAD].lower()
    words = _WORD.findall(text)
    values = _VALUES.intersection(words).union(each.rstrip(".,:") for each in _NUMBER.findall(text))
    updates = not _UPDATES.isdisjoint(words) or (
        any(hint in text for hint in _UPDATE_HINTS) and _UPDATE_PHRASES.search(text) is not None
    )
    return _Said(values, updates)


def _place(candidate: Candidate) -> tuple[float, bool, float, int]:
    """Best first; of those with one score first what replaces another, the newest of these before the others."""
    if "fresher" not in candidate.parts:
        return (-candidate.score, True, 0.0, 0)
    at, _, row = _age(candidate)
    return (-candidate.score, False, -at.timestamp(), -row)


def _age(candidate: Candidate) -> tuple[datetime, bool, int]:
    """When it was stated, which need not be when what it states happens.

    What was learned is as old as the words it was learned from, and no newer than others said in the same breath.
    """
    record = candidate.record
    return (record.created_at, record.category is Category.TURN, candidate.row)


def _states(candidate: Candidate) -> bool:
    """Whether it is a statement, and not the sum of many."""
    return candidate.record.category not in (Category.EPISODE, Category.SUMMARY)


def _voice(candidate: Candidate) -> tuple[object, object]:
    """Who says it: what the assistant says does not replace what the user said."""
    detail = candidate.record.detail
    return detail.get("role", "user"), detail.get("name")
