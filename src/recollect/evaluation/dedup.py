"""How well a sentence said again is told from one that only sounds alike: by cosine alone, and by resolving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from recollect.evaluation.merging import decisions, merges
from recollect.evaluation.metrics import auroc, pearson, spearman
from recollect.evaluation.pairs import KINDS, Pair, differences
from recollect.evaluation.statements import Case
from recollect.evaluation.subject import borrowed_embedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from recollect.settings import Settings

# From 4 on people find that two sentences mean the same, up to details; below, something of weight differs.
SAME = 4.0
SHOWN = (0.60, 0.70, 0.75, 0.80, 0.85, 0.90, 0.95, 0.98)
_BATCH = 256
# Precision counts twice as much as recall: a wrong merge loses a memory, a missed one only keeps two.
_BETA = 0.5


async def cosines(
    pairs: Sequence[Pair] | Sequence[Case], settings: Settings, *, progress: Callable[[int], None] = lambda done: None
) -> tuple[str, NDArray[np.float64]]:
    """The name of the embedder, and the cosine of each pair."""
    import numpy as np

    found: list[NDArray[np.float64]] = []
    async with borrowed_embedder(settings) as embedder:
        for start in range(0, len(pairs), _BATCH):
            some = pairs[start : start + _BATCH]
            left = await embedder.embed([each.first for each in some])
            right = await embedder.embed([each.second for each in some])
            found.append(np.einsum("ij,ij->i", left, right, dtype=np.float64))
            progress(start + len(some))
        return str(embedder.model), np.concatenate(found)


def dedup_document(
    pairs: Sequence[Pair], cosine: NDArray[np.float64], *, file: str, embedder: str, same: float = SAME
) -> dict[str, Any]:
    """Correlations, the marks at several thresholds, the best of all thresholds, and the dangerous pairs apart."""
    import numpy as np

    similarity = np.array([each.similarity for each in pairs], np.float64)
    alike = similarity >= same
    area = auroc(cosine[alike].tolist(), cosine[~alike].tolist())
    best = _best_threshold(cosine, alike)
    ways = differences(pairs)
    return {
        "file": file,
        "embedder": embedder,
        "n": len(pairs),
        "same_from": same,
        "same": int(alike.sum()),
        "pearson": round(pearson(cosine, similarity), 6),
        "spearman": round(spearman(cosine, similarity), 6),
        "auroc": None if area is None else round(area, 6),
        "thresholds": [_marks(cosine, alike, each) for each in SHOWN],
        "best": None if best is None else _marks(cosine, alike, best),
        "resolved": _resolved(pairs, cosine, alike, ways),
        "differs_in": [_kind(ways, cosine, alike, kind, best) for kind in KINDS],
        "wrongly_merged": [
            {"first": pairs[at].first, "second": pairs[at].second, "similarity": pairs[at].similarity}
            | {"cosine": round(float(cosine[at]), 6), "differs_in": sorted(ways[at])}
            for at in _wrong(cosine, alike, best)
        ],
    }


def _resolved(
    pairs: Sequence[Pair], cosine: NDArray[np.float64], alike: NDArray[np.bool_], ways: Sequence[frozenset[str]]
) -> dict[str, Any]:
    """What resolving does with the pairs: how much it merges, rightly and wrongly, and what of that is dangerous."""
    import numpy as np

    merged = np.array(merges(decisions([(each.first, each.second) for each in pairs], cosine)), bool)
    wrong = [int(at) for at in np.flatnonzero(merged & ~alike)]
    right = int((merged & alike).sum())
    return {
        "merged": int(merged.sum()),
        "wrong": len(wrong),
        "dangerous": sum(bool(ways[at]) for at in wrong),
        "precision": round(right / int(merged.sum()), 6) if merged.any() else 1.0,
        "recall": round(right / int(alike.sum()), 6) if alike.any() else 0.0,
        "wrongly_merged": [
            {"first": pairs[at].first, "second": pairs[at].second, "similarity": pairs[at].similarity}
            | {"cosine": round(float(cosine[at]), 6), "differs_in": sorted(ways[at])}
            for at in wrong
        ],
    }


def _best_threshold(cosine: NDArray[np.float64], alike: NDArray[np.bool_]) -> float | None:
    """The cosine from which on merging is best, in steps of a hundredth; of equals the highest."""
    if not alike.any():
        return None
    return max((step / 100 for step in range(101)), key=lambda at: (_marks(cosine, alike, at)["f"], at))


def _marks(cosine: NDArray[np.float64], alike: NDArray[np.bool_], threshold: float) -> dict[str, Any]:
    merged = cosine >= threshold
    right = int((merged & alike).sum())
    precision = right / int(merged.sum()) if merged.any() else 1.0
    recall = right / int(alike.sum()) if alike.any() else 0.0
    weight = _BETA**2
    mark = (1 + weight) * precision * recall / (weight * precision + recall) if right else 0.0
    return {
        "threshold": threshold,
        "merged": int(merged.sum()),
        "wrong": int(merged.sum()) - right,
        "precision": round(precision, 6),
        "recall": round(recall, 6),
        "f": round(mark, 6),
    }


def _kind(
    ways: Sequence[frozenset[str]],
    cosine: NDArray[np.float64],
    alike: NDArray[np.bool_],
    kind: str,
    best: float | None,
) -> dict[str, Any]:
    """The pairs that differ in one way: how many are not the same, and how many of those would be merged."""
    import numpy as np

    chosen = np.array([kind in each for each in ways], bool)
    apart = cosine[chosen & ~alike]
    return {
        "kind": kind,
        "n": int(chosen.sum()),
        "different": len(apart),
        "mean_cosine": round(float(apart.mean()), 6) if len(apart) else None,
        "wrong": int((apart >= best).sum()) if best is not None else 0,
    }


def _wrong(cosine: NDArray[np.float64], alike: NDArray[np.bool_], best: float | None) -> list[int]:
    """Where pairs stand that the best threshold merges though they differ, the nearest first."""
    if best is None:
        return []
    return [int(at) for at in (-cosine).argsort(kind="stable") if cosine[at] >= best and not alike[at]]
