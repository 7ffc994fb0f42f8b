"""Pairs of sentences that say the same or not: what they differ in, and where to merge them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import evaluation_samples as samples
import numpy as np
import pytest

from recollect.errors import InvalidInput
from recollect.evaluation.dedup import cosines, dedup_document
from recollect.evaluation.pairs import Pair, differences, read_pairs
from recollect.settings import Settings


@pytest.mark.parametrize(
    ("first", "second", "kinds"),
    [
        ("Alice likes tea", "Alice likes TEA", set()),
        ("Alice likes tea", "Alice does not like tea", {"negation"}),
        ("Alice likes tea", "Alice doesn’t like tea", {"negation"}),
        ("Alice likes tea", "Bob likes tea", {"name"}),
        ("She met Alice's boss", "She met Bob's boss", {"name"}),
        ("The tea is hot", "A tea is hot", set()),
        ("It costs 1,000 dollars", "It costs 1000 dollars.", set()),
        ("It costs 1,000 dollars", "It costs 2,000 dollars", {"number"}),
        ("He has two cats", "He has 2 cats", set()),
        ("He has two cats", "He has three cats", {"number"}),
    ],
)
def test_what_two_sentences_differ_in_is_seen(first: str, second: str, kinds: set[str]) -> None:
    others = [Pair("the tea of a she it he", "she met the boss", 0.0)]
    assert differences([Pair(first, second, 1.0), *others])[0] == kinds


def test_long_texts_are_told_apart_in_no_time() -> None:
    for text in ("a'" * 50_000, "1," * 50_000, "A" * 100_000, "1.:,'" * 20_000, "'" * 100_000):
        began = time.process_time()
        differences([Pair(text, text + "x", 1.0)])
        assert time.process_time() - began < 5


def test_the_best_threshold_merges_what_is_the_same_and_little_else() -> None:
    pairs = [Pair("a b", "a b", similarity) for similarity in (5, 4.5, 4, 1, 1, 0)]
    cosine = np.array([0.99, 0.95, 0.9, 0.895, 0.4, 0.1])
    told = dedup_document(pairs, cosine, file="f", embedder="e")
    assert told["best"]["threshold"] == 0.9
    assert (told["best"]["precision"], told["best"]["recall"], told["auroc"]) == (1, 1, 1)
    at = {row["threshold"]: row for row in told["thresholds"]}
    assert (at[0.85]["merged"], at[0.85]["wrong"], at[0.85]["precision"]) == (4, 1, 0.75)
    assert dedup_document(pairs, cosine, file="f", embedder="e", same=5)["best"]["threshold"] == 0.99
    assert dedup_document(pairs[3:], cosine[3:], file="f", embedder="e")["best"] is None


def test_dangerous_pairs_are_counted_apart(tmp_path: Path) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text(samples.PAIRS)
    pairs = read_pairs(file)
    model, cosine = asyncio.run(cosines(pairs, Settings()))
    told = dedup_document(pairs, cosine, file="pairs.csv", embedder=model)
    assert len(cosine) == len(pairs) == 6
    assert {row["kind"]: row["different"] for row in told["differs_in"]} == {"number": 1, "negation": 1, "name": 1}
    assert all({"first", "second", "cosine", "differs_in"} <= set(each) for each in told["wrongly_merged"])


@pytest.mark.parametrize("line", ["one,two", "one,two,six", "one,two,7", "one,,3", "one,two,nan", '"a"b",c,1,2'])
def test_a_wrong_pair_is_named_by_its_line(line: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text("one,two,3\n" + line + "\n")
    with pytest.raises(InvalidInput, match=r"line 2.*it should be CSV"):
        read_pairs(file)
