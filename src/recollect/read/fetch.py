"""Fetch the candidates worth a closer look, as far as the ledger says they may be seen."""

from __future__ import annotations

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
    """How many candidates get a closer look, how relevant they are at least, and whether the others are told too."""

    count: int
    least: float
    all: bool = False


async def fetch(
    scope: Scope, found: Gathered, wanted: Wanted, relevance: Floats, closer: Closer, *, ledger: Ledger
) -> tuple[list[Candidate], list[Candidate]]:
    """The candidates that get a closer look, best first; and, if asked for, those that do not."""
    read = await _read(scope, found, wanted, relevance, closer, ledger=ledger)
    good = above(read, closer.least)
    for late in good[closer.count :]:
        late.fate = f"it is not among the {closer.count} most relevant"
    return good[: closer.count], [each for each in read if each.fate]


async def _read(
    scope: Scope, found: Gathered, wanted: Wanted, relevance: Floats, closer: Closer, *, ledger: Ledger
) -> list[Candidate]:
    order = np.argsort(-relevance, kind="stable")
    enough = len(order) if closer.all else closer.count
    if not closer.all:
        order = order[relevance[order] >= closer.least]
    taken: list[Candidate] = []
    for start in range(0, len(order), enough or 1):
        places = {int(found.pool.rows[at]): int(at) for at in order[start : start + enough]}
        seen = await ledger.fetch(scope, list(places), filter=wanted.filter, as_of=wanted.as_of)
        records = {each.row: each.record for each in seen}
        taken += [
            Candidate(at, row, records[row], float(relevance[at]), parts=parts_of(found, at))
            for row, at in places.items()
            if row in records
        ]
        if len(taken) >= enough:
            break
    return taken


def parts_of(found: Gathered, at: int) -> dict[str, float]:
    """The scores of a candidate that are shown, and that later steps look at."""
    pool = found.pool
    return {
        "dense": float(pool.dense[at]) if pool.known[at] else 0.0,
        "lexical": float(pool.lexical[at]),
        "coverage": float(pool.coverage[at]),
        "meaning": float(found.outlook.ruler.scaled(pool.dense[at : at + 1])[0]),
    }
