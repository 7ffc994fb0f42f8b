"""Two results are compared question by question, and only a result is written over."""

from __future__ import annotations

import json
from pathlib import Path

import evaluation_samples as samples
import pytest

from recollect.errors import InvalidInput
from recollect.evaluation.compare import compare
from recollect.evaluation.files import check_writable, read_result, write_result


def _result(path: Path, marks: list[float], *, benchmark: str = "locomo") -> Path:
    questions = [
        {"id": f"q{number}", "headline": True, "category": "c", "marks": {"R@10": mark, "MRR": mark}}
        for number, mark in enumerate(marks)
    ]
    report = {"format": "recollect evaluation 1", "benchmark": benchmark, "k": 10, "settings": {}}
    write_result(path, {**report, "questions": questions})
    return path


def test_a_difference_is_paired_question_by_question(tmp_path: Path) -> None:
    a = _result(tmp_path / "a.json", [0.1 * number for number in range(10)])
    b = _result(tmp_path / "b.json", [0.1 * number + 0.05 for number in range(11)])
    report = compare(a, b)
    assert (report["n"], report["only_in_a"], report["only_in_b"]) == (10, 0, 1)
    for row in report["marks"]:
        # Every question gained the same, so there is no doubt, however far the questions lie apart.
        assert (row["difference"], row["low"], row["high"]) == pytest.approx((0.05, 0.05, 0.05))


def test_results_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    a = _result(tmp_path / "a.json", [1, 0])
    with pytest.raises(InvalidInput, match="no question in common"):
        compare(a, _result(tmp_path / "b.json", [1, 0], benchmark="beam"))
    with pytest.raises(InvalidInput, match="--json FILE"):
        compare(a, samples.write(tmp_path / "c.json", {"questions": []}))
    broken = json.loads(a.read_text())
    broken["questions"][0].pop("marks")
    with pytest.raises(InvalidInput, match="not whole"):
        compare(a, samples.write(tmp_path / "d.json", broken))


def test_only_a_result_is_written_over(tmp_path: Path) -> None:
    precious = tmp_path / "precious.json"
    precious.write_text("[1]")
    with pytest.raises(InvalidInput, match="is there already"):
        write_result(precious, {})
    assert precious.read_text() == "[1]"
    a = _result(tmp_path / "a.json", [1])
    assert len(read_result(_result(a, [1, 0]))["questions"]) == 2
    with pytest.raises(InvalidInput, match="no folder"):
        check_writable(tmp_path / "nowhere" / "a.json")
    assert not list(tmp_path.glob("*.part"))
