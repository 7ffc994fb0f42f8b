"""What resolving really does with pairs of statements: is the second taken for the first said again?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from recollect.evaluation.statements import KINDS, PARTS, STRICT, Case
from recollect.model.learned import Learned
from recollect.model.memory import Category, MemoryRecord, MemoryType
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.write.settling.resolution import Did, Limits, Neighbour
from recollect.write.settling.resolve import resolve

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SCOPE = Scope("evaluation")
_MERGED = (Did.KNOWN, Did.MERGED)


def decisions(
    pairs: Sequence[tuple[str, str]], cosine: NDArray[np.float64], *, limits: Limits | None = None
) -> list[Did]:
    """What becomes of the second statement of each pair when the first is known."""
    return [
        resolve(
            _SCOPE,
            [Learned(content=second)],
            [[Neighbour(_known(first), float(similarity))]],
            limits=limits or Limits(),
        )
        .decisions[0]
        .did
        for (first, second), similarity in zip(pairs, cosine, strict=True)
    ]


def merges(found: Sequence[Did]) -> list[bool]:
    """Which of the second statements were taken for the first."""
    return [each in _MERGED for each in found]


def merging_document(cases: Sequence[Case], found: Sequence[Did]) -> dict[str, Any]:
    """Shares of what was merged, part by part and kind by kind, and every pair that was wrongly merged."""
    merged = merges(found)
    return {
        "parts": [_part(part, cases, found) for part in PARTS],
        "wrongly_merged": [
            {"first": case.first, "second": case.second, "differs_in": case.kind, "part": case.part}
            for case, one in zip(cases, merged, strict=True)
            if one and case.kind
        ],
        "missed": [
            {"first": case.first, "second": case.second, "part": case.part, "did": str(did)}
            for case, one, did in zip(cases, merged, found, strict=True)
            if not one and not case.kind
        ],
    }


def _part(part: str, cases: Sequence[Case], found: Sequence[Did]) -> dict[str, Any]:
    rows = [(case.kind, did) for case, did in zip(cases, found, strict=True) if case.part == part]
    same = [did in _MERGED for kind, did in rows if not kind]
    kinds = {kind: [did in _MERGED for each, did in rows if each == kind] for kind in KINDS}
    return {
        "part": part,
        "same": len(same),
        "merged": sum(same),
        "share": round(sum(same) / len(same), 6) if same else None,
        "dangerous": sum(len(kinds[kind]) for kind in STRICT),
        "dangerous_merged": sum(sum(kinds[kind]) for kind in STRICT),
        "kinds": [{"kind": kind, "n": len(each), "merged": sum(each)} for kind, each in kinds.items()],
        "to_ask": sum(did is Did.UNDECIDED for _, did in rows),
    }


def _known(content: str) -> MemoryRecord:
    at = now()
    return MemoryRecord(
        id="known",
        scope=_SCOPE,
        level=Level.USER,
        type=MemoryType.SEMANTIC,
        category=Category.FACT,
        content=content,
        created_at=at,
        updated_at=at,
        source="extraction",
    )
