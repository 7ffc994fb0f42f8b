"""Whether one run is better than another: the same questions, held against each other one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from recollect.errors import InvalidInput
from recollect.evaluation.files import read_result
from recollect.evaluation.metrics import bootstrap

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
