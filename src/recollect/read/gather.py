"""Gather candidates side by side: by meaning from the index, by words from the ledger, and the turns beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from recollect.index.protocol import Index, Nearest, View
from recollect.language.when import Period
from recollect.ledger.protocol import Ledger, Said
from recollect.ledger.terms import query_terms, terms_of
from recollect.model.query import EVERYTHING, Filter
from recollect.model.scope import Scope
from recollect.model.talk import without_talk
from recollect.model.traits import Trait
from recollect.read.question import Question, bare_words, named_among, without_names
from recollect.read.ruler import Ruler
from recollect.read.signals import Outlook, Pool
from recollect.read.small_words import small_words_of, words_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.model.change import Vector

    Rows = NDArray[np.int64]

# As many rows like any other are assumed beside the user's own: three memories say little about what is near.
_ASSUMED_ROWS = 20
DICTATED = int(Trait.ASSISTANT | Trait.STANDING)
# In deviations above the mean, for a memory that has all of the question's words.
_NEAR_BY_WORDS = np.float32(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is looked for, and where; of its words, some may only be `guessed` to be what is spoken of."""

    question: Question
    words: str
    vector: Vector
    guessed: tuple[str, ...] = ()
    filter: Filter = EVERYTHING
    as_of: datetime | None = None
    periods: tuple[Period, ...] = ()
    pool: int = 64
    turns: bool = True
    for_prompt: bool = False


@dataclass(frozen=True, slots=True)
class Gathered:
    """The candidates, what is known of the question, and the view they were found in."""

    pool: Pool
    outlook: Outlook
    view: View


async def gather(scope: Scope, wanted: Wanted, *, ledger: Ledger, index: Index, ruler: Ruler) -> Gathered:
    """The best rows of each kind and the turns beside them; every row gets all scores, however it was found."""
    view = await index.view(scope, wanted.filter, as_of=wanted.as_of, turns=wanted.turns)
    speakers = view.speakers_called(bare_words(wanted.question.text))
    named = named_among(wanted.question.text, speakers)
    # Who said it is known of every turn: their names in the text would only blur the rest.
    words = without_talk(without_names(wanted.words, named) if named else wanted.words)
    said, near = await _found(scope, words, wanted, ledger=ledger, view=view)
    if told := _told_of(words, wanted, said.missing):
        words, said = told, await ledger.lexical(scope, told)
    # Words are looked up for all that the user has: what may not be found must not crowd out what may.
    seen = view.sees(said.rows)
    said = Said(said.rows[seen], said.scores[seen], said.coverage[seen], said.missing, said.missed)
    outlook = _outlook(wanted, words, view, {name: speakers[name] for name in named}, near, said, ruler)
    rows = _candidates(view, near, said, wanted.pool)
    if wanted.for_prompt:
        # What an assistant once said someone must always do was not said by the user: no prompt is told it again.
        rows = rows[(view.traits(rows).flags & DICTATED) != DICTATED]
    pool = await _pool(view, wanted.vector, rows, said, outlook)
    return Gathered(pool, outlook, view)


async def _found(scope: Scope, words: str, wanted: Wanted, *, ledger: Ledger, view: View) -> tuple[Said, Nearest]:
    if view.is_quick:
        # Two tasks would take longer than what they do.
        return await ledger.lexical(scope, words), await view.nearest(wanted.vector, limit=wanted.pool)
    # Words first: where they are looked up in another thread, the vectors are compared meanwhile.
    return await asyncio.gather(ledger.lexical(scope, words), view.nearest(wanted.vector, limit=wanted.pool))


def _told_of(words: str, wanted: Wanted, missing: frozenset[str]) -> str:
    """What is left of words of which some were guessed, if the best guess is a name that is known; else nothing.

    A question with words that no memory has is one they hardly answer. But where it is plain what is spoken of, other
    guesses that no memory has speak against none, nor do the small words of a question that needed guessing.
    """
    if not wanted.guessed:
        return ""
    small = small_words_of(words_of(words))
    unknown = {word for word in wanted.guessed if missing.issuperset(terms_of(word))}
    best = next(iter(wanted.guessed), "")
    if not best[:1].isupper() or small.nouns_are_capital or best in unknown:
        return ""
    return " ".join(word for word in words_of(words) if word not in unknown and word not in small)


def _candidates(view: View, near: Nearest, said: Said, limit: int) -> Rows:
    top = said.rows
    if len(top) > limit:
        top = top[np.argpartition(said.scores, len(top) - limit)[-limit:]]
    rows = np.concatenate((near.rows, top))
    before, after = view.beside(rows)
    rows = np.unique(np.concatenate((rows, before, after)))
    return rows[rows >= 0]


async def _pool(view: View, vector: Vector, rows: Rows, said: Said, outlook: Outlook) -> Pool:
    traits = view.traits(rows)
    before, after = view.beside(rows)
    at, here = _places(said.rows, rows)
    coverage = _values(said.coverage, at, here)
    # How near a memory without a vector is nobody knows, nor any of them while the embedder is away. Taken for far it
    # would never be found: it is taken for as near as those are that share as many words.
    guessed = np.float32(outlook.mean) + _NEAR_BY_WORDS * np.float32(outlook.spread) * coverage
    known = traits.embedded & bool(vector.any())
    return Pool(
        rows=rows,
        dense=np.where(known, await view.similarity(vector, rows), guessed),
        known=known,
        lexical=_values(said.scores, at, here),
        coverage=coverage,
        before=_where(rows, before),
        after=_where(rows, after),
        traits=traits,
    )


def _places(rows: Rows, wanted: Rows) -> tuple[Rows, NDArray[np.bool_]]:
    """Where each wanted row stands among `rows`, which rise, and whether it is there at all."""
    if not len(rows):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
    return at, rows[at] == wanted


def _values(values: NDArray[np.float32], at: Rows, here: NDArray[np.bool_]) -> NDArray[np.float32]:
    return np.where(here, values[at], np.float32(0)) if len(values) else np.zeros(len(at), np.float32)


def _where(rows: Rows, wanted: Rows) -> Rows:
    at, here = _places(rows, wanted)
    return np.where(here, at, -1)


def _outlook(
    wanted: Wanted, words: str, view: View, named: Mapping[str, int], near: Nearest, said: Said, ruler: Ruler
) -> Outlook:
    count = near.count + _ASSUMED_ROWS
    mean = (near.mean * near.count + ruler.mean * _ASSUMED_ROWS) / count
    variance = (
        near.count * (near.deviation**2 + (near.mean - mean) ** 2)
        + _ASSUMED_ROWS * (ruler.deviation**2 + (ruler.mean - mean) ** 2)
    ) / count
    return Outlook(
        question=wanted.question,
        terms=len(query_terms(words)),
        count=view.count,
        missing=said.missed,
        unknown_names=any(_unknown(name, said, named) for name in _names(wanted)),
        named=tuple(named.values()),
        mean=mean,
        spread=max(variance, 1e-6) ** 0.5,
        ruler=ruler,
        periods=wanted.periods,
    )


def _names(wanted: Wanted) -> list[str]:
    """The names in the question; those of months and days are none."""
    times = " ".join(period.said for period in wanted.periods).casefold()
    return [name for name in wanted.question.names if name.casefold() not in times]


def _unknown(name: str, said: Said, named: Collection[str]) -> bool:
    """Whether nobody ever spoke of this name."""
    terms = terms_of(name)
    return bool(terms) and said.missing.issuperset(terms) and not named_among(name, named)
