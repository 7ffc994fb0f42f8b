"""Find the stored memories that new turns may repeat, change or end; tuned for recall rather than precision."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from recollect.deps import Deps
from recollect.ledger.ledger import Ledger
from recollect.model.memory import Category, MemoryRecord
from recollect.model.query import Filter, Listing, Not, Op, Where
from recollect.model.scope import Scope
from recollect.model.turn import Role, Turn
from recollect.text.names import MentionKind, find_mentions, name_candidates
from recollect.write.embed import embed
from recollect.write.sentences import split_sentences

if TYPE_CHECKING:
    from recollect.index.protocol import View
    from recollect.model.change import Vector


MAX_RELATED = 20
# The places among them reserved for keyed facts and standing instructions, related or not.
_MIN_PINNED = 4
_PER_QUERY = 8
_PER_STATEMENT = 3
_MAX_QUERIES = 16
_MAX_CHARS = 2_000
_MAX_KEYED = 1_000
# Weights of shared words, relative to the cosine, and of the preceding turns.
_LEXICAL_WEIGHT = 1.0
_CONTEXT_WEIGHT = 0.8
# Weight of a name that one memory shares with the turns; it is less the more memories do.
_NAME_WEIGHT = 0.5
_MAX_MENTIONS = 2_000
# Turns, files, and texts about whole conversations are no statements to reconcile with.
STATEMENTS: Filter = Not(
    Where("category", Op.IN, tuple(map(str, (Category.TURN, Category.FILE, Category.SUMMARY, Category.EPISODE))))
)
_INSTRUCTIONS: Filter = Where("category", Op.IN, (str(Category.INSTRUCTION),))


async def find_related(
    scope: Scope, turns: Sequence[Turn], context: Sequence[Turn], deps: Deps, *, limit: int = MAX_RELATED
) -> list[MemoryRecord]:
    """Return the memories related to the turns, the nearest first, then keyed facts and standing instructions."""
    view = await deps.index.view(scope, STATEMENTS)
    if not view.count:
        return []
    scores = await _scores(scope, turns, context, view, deps)
    best = sorted(scores, key=lambda row: -scores[row])[: limit + _MIN_PINNED]
    numbered = await deps.ledger.fetch(scope, best, filter=STATEMENTS) if best else []
    by_row = {each.row: each.record for each in numbered}
    related = [by_row[row] for row in best if row in by_row]
    related_ids = {record.id for record in related}
    pinned = [record for record in await _keyed_and_instructions(scope, deps.ledger) if record.id not in related_ids]
    return [*related[: limit - min(len(pinned), _MIN_PINNED)], *pinned][:limit]


async def _scores(
    scope: Scope, turns: Sequence[Turn], context: Sequence[Turn], view: View, deps: Deps
) -> dict[int, float]:
    """Return the best score of each row, by meaning of the texts and their sentences, shared words and names."""
    queries = _queries(turns, 1.0) + _queries(context[-2:], _CONTEXT_WEIGHT)
    vectors = await embed([text for text, _ in queries], embedder=deps.embedder)
    scores: dict[int, float] = {}
    for (_, weight), vector in zip(queries, vectors, strict=True):
        if vector is None:
            continue
        near = await view.nearest(vector, limit=_PER_QUERY)
        for row, score in zip(near.rows.tolist(), near.scores.tolist(), strict=True):
            scores[row] = max(scores.get(row, 0.0), weight * score)
    text = "\n".join(turn.content[:_MAX_CHARS] for turn in turns if turn.role is Role.USER)
    lexical = await deps.ledger.lexical(scope, text)
    seen = view.is_visible(lexical.rows)
    top = np.argsort(-lexical.scores[seen])[: 2 * MAX_RELATED]
    for row, score in zip(lexical.rows[seen][top].tolist(), lexical.scores[seen][top].tolist(), strict=True):
        scores[row] = scores.get(row, 0.0) + _LEXICAL_WEIGHT * score
    for row, score in (await _name_scores(scope, text, view, deps.ledger)).items():
        scores[row] = scores.get(row, 0.0) + score
    return scores


async def _name_scores(scope: Scope, text: str, view: View, ledger: Ledger) -> dict[int, float]:
    """Return a score for each row that mentions a name of the text: in a long text, a name is one word among many."""
    found = await ledger.mentions(scope.user, name_candidates(text), limit=_MAX_MENTIONS)
    visible = view.is_visible(np.array([each.row for each in found], np.int64))
    found = [each for each, seen in zip(found, visible.tolist(), strict=True) if seen]
    # A word that only begins sentences may be no name, unless it is one in the text.
    names = {each.name for each in found if each.kind is not MentionKind.OPENING}
    names |= {each.name for each in find_mentions(text) if each.kind is not MentionKind.OPENING}
    rows: dict[str, set[int]] = {}
    for each in found:
        if each.name in names:
            rows.setdefault(each.name, set()).add(each.row)
    scores: dict[int, float] = {}
    for sharing in rows.values():
        for row in sharing:
            scores[row] = scores.get(row, 0.0) + _NAME_WEIGHT / math.sqrt(len(sharing))
    return scores


def _queries(turns: Sequence[Turn], weight: float) -> list[tuple[str, float]]:
    """Return the texts to search by: each user turn as a whole, and each of its sentences."""
    texts: dict[str, float] = {}
    for turn in turns:
        if turn.role is not Role.USER:
            continue
        texts[turn.content[:_MAX_CHARS]] = weight
        texts |= {sentence.text: weight for sentence in split_sentences(turn.content)[:_MAX_QUERIES]}
    return list(texts.items())[:_MAX_QUERIES]


async def _keyed_and_instructions(scope: Scope, ledger: Ledger) -> list[MemoryRecord]:
    """Return keyed facts, the most important first, then standing instructions, the newest first."""
    keyed = await ledger.keyed_facts(scope, STATEMENTS, min_importance=0.0, limit=_MAX_KEYED)
    instructions = await ledger.find(scope, Listing(filter=_INSTRUCTIONS, visible=True, limit=_MIN_PINNED))
    return [*keyed, *(each for each in instructions if each.key is None)]


async def find_nearest_and_keyed(
    scope: Scope, vectors: Sequence[Vector | None], keys: Collection[str], deps: Deps
) -> list[MemoryRecord]:
    """Return the memories nearest to each vector, and those with one of the keys."""
    view = await deps.index.view(scope, STATEMENTS)
    rows: set[int] = set()
    for vector in vectors if view.count else ():
        if vector is not None:
            rows.update((await view.nearest(vector, limit=_PER_STATEMENT)).rows.tolist())
    numbered = await deps.ledger.fetch(scope, sorted(rows), filter=STATEMENTS) if rows else []
    keyed = await deps.ledger.keyed_facts(scope, STATEMENTS, min_importance=0.0, limit=_MAX_KEYED) if keys else []
    return [*(each.record for each in numbered), *(record for record in keyed if record.key in keys)]
