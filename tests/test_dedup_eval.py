"""The measure of merging: what resolving does with pairs, with the embedder that ships."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Cli

from recollect.evaluation.dedup import cosines, dedup_document
from recollect.evaluation.merging import decisions, merges, merging_document
from recollect.evaluation.pairs import Pair
from recollect.evaluation.statements import KINDS, PARTS, STRICT, Case, shipped_cases
from recollect.settings import Settings
from recollect.write.settling.resolution import Did

# How much of what is said again must be seen as such; less of what no rule, or hardly one, was made for.
FLOOR = 0.8
LATE_FLOORS = {"fifth": 0.75, "seventh": 0.75, "eighth": 0.55, "ninth": 0.7, "tenth": 0.5, "twelfth": 0.65} | {
    "fourteenth": 0.5
}


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path / "home")


def test_the_statements_that_ship_are_many_and_none_is_both() -> None:
    cases = shipped_cases()
    kinds = Counter(case.kind for case in cases)
    assert kinds[""] >= 1_800
    assert sum(kinds[kind] for kind in STRICT) >= 3_800
    assert set(kinds) == {"", *KINDS}
    assert {case.part for case in cases} == set(PARTS)
    same = {(case.first, case.second) for case in cases if not case.kind}
    assert not same & {(case.first, case.second) for case in cases if case.kind}


def test_no_dangerous_pair_is_merged_and_most_of_what_is_said_again_is() -> None:
    cases = shipped_cases()
    _, cosine = asyncio.run(cosines(cases, Settings()))
    told = merging_document(cases, decisions([(case.first, case.second) for case in cases], cosine))
    assert told["wrongly_merged"] == []
    for part in told["parts"]:
        assert part["dangerous_merged"] == 0
        assert part["share"] >= LATE_FLOORS.get(part["part"], FLOOR), part["part"]
    assert sum(part["merged"] for part in told["parts"]) >= 0.83 * sum(part["same"] for part in told["parts"])


def test_no_dangerous_pair_is_merged_even_if_every_embedding_is_the_same() -> None:
    cases = [case for case in shipped_cases() if case.kind in STRICT]
    merged = merges(decisions([(case.first, case.second) for case in cases], np.ones(len(cases))))
    assert [case for case, one in zip(cases, merged, strict=True) if one] == []


def test_a_share_is_of_its_own_part() -> None:
    cases = [Case("a", "b", "", "tuned"), Case("a", "c", "", "tuned"), Case("a", "d", "name", "later")]
    told = merging_document(cases, [Did.MERGED, Did.UNDECIDED, Did.KNOWN])
    tuned, _, later, *_ = told["parts"]
    assert (tuned["same"], tuned["merged"], tuned["share"], tuned["to_ask"]) == (2, 1, 0.5, 1)
    assert (later["share"], later["dangerous"], later["dangerous_merged"]) == (None, 1, 1)
    assert told["missed"] == [{"first": "a", "second": "c", "part": "tuned", "did": "undecided"}]
    assert told["wrongly_merged"][0]["differs_in"] == "name"


def test_pairs_of_a_file_are_resolved_too() -> None:
    pairs = [
        Pair("Alice has 2 cats", "Alice has three cats", 2.0),
        Pair("The train is at 9", "The train is at nine", 5.0),
    ]
    told = dedup_document(pairs, np.array([0.99, 0.9]), file="f", embedder="e")["resolved"]
    assert (told["merged"], told["wrong"], told["dangerous"], told["recall"]) == (1, 0, 0, 1)


def test_the_command_needs_no_file(cli: Cli) -> None:
    shown = cli("eval", "dedup", "--show", "2").stdout
    assert "held out" in shown
    assert "0 pairs wrongly merged" in shown
    told = json.loads(cli("eval", "dedup", "--json").stdout)
    assert [part["part"] for part in told["parts"]] == list(PARTS)
