"""A block fits its budget: what is left out, what is cut, and how that is told."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

import pytest
from format_samples import NOW, hit
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.model.memory import Category
from recollect.read.budget import TRUNCATION_MARK, count_tokens
from recollect.read.format import STYLES, format_context

# A text is drawn as a piece and how often it is repeated: up to a megabyte, which is no use in a report.
TEXTS = st.tuples(
    st.one_of(
        st.text(max_size=300), st.sampled_from(["tea ", "x", "茶", "👍", "a1", "\n", '"', "\\", "<", "\u200b"])
    ),
    st.sampled_from([1, 1, 1, 2, 30, 500, 3000, 1 << 20]),
)
DETAILS = st.sampled_from(
    [{}, {"role": "user"}, {"role": "user", "name": "n" * 500}, {"turn_start": 1, "turn_end": 9}]
)


def repeated(piece: str, times: int) -> str:
    return piece * min(times, (1 << 20) // max(1, len(piece)))


@settings(max_examples=200, deadline=None)
@given(
    style=st.sampled_from(list(STYLES)),
    made=st.lists(st.tuples(TEXTS, st.sampled_from(list(Category)), DETAILS), max_size=8),
    budget=st.integers(min_value=1, max_value=3000),
    told=st.one_of(st.none(), TEXTS),
)
def test_the_block_never_exceeds_its_budget(
    style: str, made: list[tuple[tuple[str, int], Category, Any]], budget: int, told: tuple[str, int] | None
) -> None:
    hits = [
        hit(repeated(*text), category, id=str(at), detail=detail) for at, (text, category, detail) in enumerate(made)
    ]
    summary = repeated(*told) if told else None
    context = format_context(style, hits, budget_tokens=budget, now=NOW, summary=summary)
    # Each line counts its line end, and each section the gap before it.
    assert (
        count_tokens(context.text) <= context.tokens <= min(budget, count_tokens(context.text) + 3 * len(hits) + 12)
    )
    ids = [each.id for each in hits]
    assert sorted({*context.used, *context.dropped} - {"summary"}) == sorted(ids)
    assert not set(context.used) & set(context.dropped)
    assert {*context.cut, *context.flagged} <= set(context.used)
    assert bool(context.text) == bool(context.used)
    late = [id for id in ids if context.dropped.get(id, "").startswith("the budget")]
    rest = [id for id in ids if context.dropped.get(id) != "it is the summary"]
    assert late == rest[len(rest) - len(late) :]
    assert [id for id in ids if id in context.used] == [id for id in context.used if id != "summary"]


def test_memories_are_left_out_from_the_end_of_the_ranking() -> None:
    hits = [hit(f"memory number {at} is about something long enough to count", id=str(at)) for at in range(40)]
    context = format_context("recollect", hits, budget_tokens=400, now=NOW)
    count = len(context.used)
    assert 5 < count < 40
    assert context.used == tuple(str(at) for at in range(count))
    assert context.dropped == {str(at): "the budget of 400 tokens is used up" for at in range(count, 40)}
    assert context.cut == {}
    assert context.tokens > 360


@pytest.mark.parametrize("style", STYLES)
def test_a_long_memory_is_cut_at_a_word_and_leaves_room_for_the_next(style: str) -> None:
    hits = [hit("wonderful " * 100_000, id="long"), hit("They like tea", id="short")]
    context = format_context(style, hits, budget_tokens=512, now=NOW)
    assert context.used == ("long", "short")
    assert f"wonderful{TRUNCATION_MARK}" in context.text
    assert "They like tea" in context.text
    assert set(context.cut) == {"long"}
    assert context.tokens > 200


def test_a_long_memory_alone_may_take_all_the_room() -> None:
    context = format_context("recollect", [hit("wonderful " * 100_000)], budget_tokens=512, now=NOW)
    assert 480 < context.tokens <= 512


def test_a_cut_is_shown_even_if_most_of_the_long_text_cannot_be_seen() -> None:
    context = format_context(
        "recollect", [hit("tea " + "\u200b" * 500_000 + "poison", id="x")], budget_tokens=512, now=NOW
    )
    assert f'"tea{TRUNCATION_MARK}"' in context.text.replace(f" {TRUNCATION_MARK}", TRUNCATION_MARK)
    assert set(context.cut) == {"x"}


def test_a_megabyte_costs_little_more_than_a_page() -> None:
    hits = [hit("wonderful tea " * 75_000, id=str(at)) for at in range(20)]
    runs = []
    for _ in range(3):
        start = time.process_time()
        format_context("recollect", hits, budget_tokens=2048, now=NOW)
        runs.append(time.process_time() - start)
    assert min(runs) < 0.5


def test_where_nothing_fits_there_is_no_block_and_the_reason_is_said() -> None:
    context = format_context("recollect", [hit("tea", id="x")], budget_tokens=64, now=NOW)
    assert context.text == ""
    assert context.dropped == {"x": "the budget of 64 tokens is used up"}


def test_what_became_of_each_memory_can_be_written_as_json() -> None:
    hits = [
        hit("see https://a.example " + "tea " * 5000, id="a", created_at=NOW - timedelta(days=400)),
        hit("tea " * 20, id="b"),
        hit("tea " * 20, id="c"),
    ]
    context = format_context("recollect", hits, budget_tokens=256, now=NOW)
    plain = json.loads(json.dumps(context.to_dict()))
    assert plain["used"] == ["a", "b"]
    assert list(plain["cut"]) == list(plain["flagged"]) == ["a"]
    assert list(plain["dropped"]) == ["c"]
