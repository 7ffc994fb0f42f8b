"""How good a ranking is, in numbers."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeAlias

from evals.files import read_result
from recollect.errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


CUTS = (1, 5, 10, 20)
RESAMPLES = 10_000
_CHUNK = 500


def rank_marks(ranked: Sequence[str], gold: Sequence[str], *, k: int) -> dict[str, float]:
    """The marks of one ranking: R@1, 5, 10 and 20, MRR, and hit, all, NDCG and P at k."""
    relevant = set(gold)
    ranks = [rank for rank, each in enumerate(ranked, 1) if each in relevant]
    marks = {f"R@{cut}": sum(rank <= cut for rank in ranks) / len(relevant) for cut in CUTS}
    within = [rank for rank in ranks if rank <= k]
    ideal = sum(_gain(rank) for rank in range(1, min(len(relevant), k) + 1))
    return marks | {
        f"hit@{k}": float(bool(within)),
        f"all@{k}": float(len(within) == len(relevant)),
        "MRR": 1 / ranks[0] if ranks else 0.0,
        f"NDCG@{k}": sum(map(_gain, within)) / ideal,
        f"P@{k}": len(within) / min(k, len(ranked)) if ranked else 0.0,
    }


def _gain(rank: int) -> float:
    return 1 / math.log2(rank + 1)


def mean_marks(marks: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each mark."""
    return {name: fmean(each[name] for each in marks) for name in marks[0]}


def auroc(answerable: Sequence[float], unanswerable: Sequence[float]) -> float | None:
    """How often something answerable scores higher than something that is not; None where there is one kind only."""
    if not answerable or not unanswerable:
        return None
    below = sorted(unanswerable)
    won = sum(bisect_left(below, score) + bisect_right(below, score) for score in answerable)
    return won / (2 * len(answerable) * len(unanswerable))


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values lies below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def pearson(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """How well a straight line fits; 0 where one side never changes."""
    a, b = left - left.mean(), right - right.mean()
    spread = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / spread if spread else 0.0


def spearman(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """How well the two orders agree; equal values share the mean of their ranks."""
    return pearson(_ranks(left), _ranks(right))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray(last - (counts - 1) / 2, np.float64)[inverse]


def bootstrap(differences: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """The 95 % confidence interval of the mean, by drawing the questions anew many times."""
    import numpy as np

    values, random = np.asarray(differences, np.float64), np.random.default_rng(seed)
    # In parts, as all draws of a large set at once would fill the memory.
    draws = (random.integers(0, len(values), (_CHUNK, len(values))) for _ in range(RESAMPLES // _CHUNK))
    averages = np.concatenate([values[draw].mean(axis=1) for draw in draws])
    low, high = np.quantile(averages, (0.025, 0.975))
    return float(low), float(high)


Paired: TypeAlias = tuple[Mapping[str, Any], Mapping[str, Any]]
# The mark that is told for each category; all of them for each would be too much to take in.
BY_CATEGORY = "R@10"


def compare(first: Path, second: Path) -> dict[str, Any]:
    """The differences of two results over the questions both have, each with its 95 % confidence interval."""
    runs = read_result(first), read_result(second)
    try:
        return {
            "benchmark": runs[0]["benchmark"],
            "a": {"file": str(first), "settings": dict(runs[0]["settings"])},
            "b": {"file": str(second), "settings": dict(runs[1]["settings"])},
            **_differences(*runs),
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidInput(f"{first} or {second} is not whole: {error!r}; measure it again") from error


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    a, b = _headline(first), _headline(second)
    pairs = [(a[id], b[id]) for id in a if id in b]
    if first["benchmark"] != second["benchmark"] or not pairs:
        benchmarks = f"{first['benchmark']} and {second['benchmark']}"
        raise InvalidInput(f"the two results have no question in common (they are of {benchmarks})")
    marks = [name for name in pairs[0][0]["marks"] if name in pairs[0][1]["marks"]]
    by_category: dict[str, list[Paired]] = {}
    for pair in pairs:
        by_category.setdefault(pair[0]["category"], []).append(pair)
    return {
        "n": len(pairs),
        "only_in_a": len(a) - len(pairs),
        "only_in_b": len(b) - len(pairs),
        "marks": [_difference(pairs, mark) for mark in marks],
        "categories": [
            {"category": category, **_difference(some, BY_CATEGORY)} for category, some in sorted(by_category.items())
        ],
    }


def _headline(run: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {each["id"]: each for each in run["questions"] if each["headline"]}


def _difference(pairs: Sequence[Paired], mark: str) -> dict[str, Any]:
    left = [float(a["marks"][mark]) for a, _ in pairs]
    right = [float(b["marks"][mark]) for _, b in pairs]
    low, high = bootstrap([after - before for before, after in zip(left, right, strict=True)])
    return {
        "mark": mark,
        "n": len(pairs),
        "a": round(fmean(left), 6),
        "b": round(fmean(right), 6),
        "difference": round(fmean(right) - fmean(left), 6),
        "low": round(low, 6),
        "high": round(high, 6),
    }
