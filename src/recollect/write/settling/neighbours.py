"""What is known already that is near to what was learned: the memories it may repeat, change or end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recollect.index.protocol import Index, Nearest
from recollect.ledger.protocol import Ledger
from recollect.model.learned import Learned
from recollect.model.memory import Category, MemoryRecord
from recollect.model.query import Filter, Not, Op, Where
from recollect.model.scope import Scope
from recollect.models.embedding import Embedder
from recollect.write.embed import embed
from recollect.write.settling.resolution import Neighbour

if TYPE_CHECKING:
    from recollect.model.change import Vector

MOST = 10
# More keys than anyone's profile has.
_MOST_KEYED = 1000
# What was said is the log, and files are a model's own notes: neither is resolved against.
DISTILLED: Filter = Not(Where("category", Op.IN, (str(Category.TURN), str(Category.FILE))))


async def neighbours(
    scope: Scope, learned: Sequence[Learned], *, ledger: Ledger, index: Index, embedder: Embedder
) -> list[list[Neighbour]]:
    """For each statement the nearest memories that the scope sees, and the one that holds its key."""
    if not learned:
        return []
    vectors = await embed([each.content for each in learned], embedder=embedder)
    near = await _nearest(scope, vectors, ledger=ledger, index=index)
    keyed = await _keyed(scope, ledger) if any(each.key for each in learned) else {}
    for each, those in zip(learned, near, strict=True):
        known = {neighbour.record.id for neighbour in those}
        holders = keyed.get(each.key or "", ())
        those += [Neighbour(record, 0.0) for record in holders if record.id not in known]
    return near


async def _nearest(
    scope: Scope, vectors: Sequence[Vector | None], *, ledger: Ledger, index: Index
) -> list[list[Neighbour]]:
    view = await index.view(scope, DISTILLED)
    near: list[Nearest | None] = [
        None if vector is None else await view.nearest(vector, limit=MOST) for vector in vectors
    ]
    rows = sorted({int(row) for each in near if each is not None for row in each.rows})
    found = await ledger.fetch(scope, rows, filter=DISTILLED) if rows else []
    records = {each.row: each.record for each in found}
    return [[] if each is None else _with_records(each, records) for each in near]


def _with_records(near: Nearest, records: dict[int, MemoryRecord]) -> list[Neighbour]:
    pairs = zip(near.rows.tolist(), near.scores.tolist(), strict=True)
    return [Neighbour(records[row], score) for row, score in pairs if row in records]


async def _keyed(scope: Scope, ledger: Ledger) -> dict[str, list[MemoryRecord]]:
    held: dict[str, list[MemoryRecord]] = {}
    for record in await ledger.keyed(scope, DISTILLED, least=0.0, limit=_MOST_KEYED):
        held.setdefault(record.key or "", []).append(record)
    return held
