"""Fetch the candidates worth a closer look, as far as the ledger says they may be seen."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recollect.ledger.protocol import Ledger
from recollect.model.scope import Scope
from recollect.read.candidate import Candidate
from recollect.read.gather import Gathered, Wanted
from recollect.read.select import above

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Closer:
    """How many candidates get a closer look, how relevant they are at least, and whether the others are told too.

    Those at the places `also` get one however relevant they are.
    """

    count: int
    least: float
    all: bool = False
    also: Collection[int] = ()


async def fetch(
    scope: Scope, found: Gathered, wanted: Wanted, relevance: Floats, closer: Closer, *, ledger: Ledger
) -> tuple[list[Candidate], list[Candidate]]:
    """The candidates that get a closer look, best first; and, if asked for, those that do not."""
    read = await _read(scope, found, wanted, relevance, closer, ledger=ledger)
    also = [each for each in read if each.at in closer.also]
    good = above([each for each in read if each.at not in closer.also], closer.least)
    for late in good[closer.count :]:
        late.fate = f"it is not among the {closer.count} most relevant"
    return good[: closer.count] + also, [each for each in read if each.fate]


async def _read(
    scope: Scope, found: Gathered, wanted: Wanted, relevance: Floats, closer: Closer, *, ledger: Ledger
) -> list[Candidate]:
    order = np.argsort(-relevance, kind="stable")
    enough = len(order) if closer.all else closer.count
    if not closer.all:
        order = order[relevance[order] >= closer.least]
    taken: list[Candidate] = []
    for start in range(0, len(order), enough or 1):
        chosen = [*order[start : start + enough].tolist(), *(closer.also if start == 0 else ())]
        places = {int(found.pool.rows[at]): at for at in chosen}
        seen = await ledger.fetch(scope, list(places), filter=wanted.filter, as_of=wanted.as_of)
        records = {each.row: each.record for each in seen}
        taken += [
            Candidate(at, row, records[row], float(relevance[at]), parts=parts_of(found, at))
            for row, at in places.items()
            if row in records
        ]
        if sum(each.at not in closer.also for each in taken) >= enough:
            break
    return taken


def parts_of(found: Gathered, at: int) -> dict[str, float]:
    """The scores of a candidate that are shown, and that later steps look at."""
    pool, dense = found.pool, float(found.pool.dense[at])
    return {
        "dense": dense if pool.known[at] else 0.0,
        "lexical": float(pool.lexical[at]),
        "coverage": float(pool.coverage[at]),
        "meaning": found.outlook.ruler.scale(dense),
    }
