"""Filters are parsed from plain values and compared by type."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import InvalidFilter
from recollect.model.query import (
    EVERYTHING,
    FIELDS,
    MAX_DEPTH,
    MAX_PARTS,
    MAX_VALUES,
    OPERATORS,
    And,
    Filter,
    Kind,
    Not,
    Op,
    Or,
    Where,
    both,
    matches,
    parse_filter,
    where,
)
from tests.support.ledger_samples import NOON, memory


def nested(levels: int) -> dict[str, Any]:
    plain: dict[str, Any] = {"key": "a"}
    for _ in range(levels):
        plain = {"not": plain}
    return plain


@pytest.mark.parametrize(
    ("plain", "filter"),
    [
        (None, EVERYTHING),
        ({}, EVERYTHING),
        ({"category": "fact"}, Where("category", Op.EQ, "fact")),
        ({"tags": "x"}, Where("tags", Op.CONTAINS, "x")),
        ({"key": ["a", "b"]}, Where("key", Op.IN, ("a", "b"))),
        ({"key": ("a",)}, Where("key", Op.IN, ("a",))),
        ({"key": {"a"}}, Where("key", Op.IN, ("a",))),
        ({"key": {"in": []}}, And((Where("key", Op.IN, ()),))),
        ({"importance": {"gte": 0.5}}, And((Where("importance", Op.GTE, 0.5),))),
        ({"metadata.n": 1}, Where("metadata.n", Op.EQ, 1)),
        ({"metadata": {"n": 1}}, Where("metadata.n", Op.EQ, 1)),
        ({"AND": [{"key": "a"}]}, And((Where("key", Op.EQ, "a"),))),
        ({"or": []}, Or(())),
        ({"not": {"key": "a"}}, Not(Where("key", Op.EQ, "a"))),
        ({"not": [{"key": "a"}]}, Not(Or((Where("key", Op.EQ, "a"),)))),
        ({"created_at": "2026-03-15"}, Where("created_at", Op.EQ, datetime(2026, 3, 15, tzinfo=UTC))),
        ({"created_at": {"lt": 0}}, And((Where("created_at", Op.LT, datetime(1970, 1, 1, tzinfo=UTC)),))),
    ],
    ids=str,
)
def test_plain_values_are_parsed_as_a_filter(plain: Any, filter: Any) -> None:
    assert parse_filter(plain) == filter


def test_several_fields_are_combined_with_and() -> None:
    assert parse_filter({"key": "a", "category": "fact"}) == And(
        (Where("key", Op.EQ, "a"), Where("category", Op.EQ, "fact"))
    )


def test_a_parsed_filter_is_returned_unchanged() -> None:
    filter = Not(Where("key", Op.EQ, "a"))
    assert parse_filter(filter) is filter


@pytest.mark.parametrize(
    ("plain", "reason"),
    [
        ({"colour": "green"}, "unknown field 'colour'"),
        ({"$or": [{"key": "a"}]}, "unknown field"),
        ({"$ne": 1}, "unknown field"),
        ({7: 1}, "unknown field"),
        ({"user_id": "bob"}, "unknown field"),
        ({"metadata": "x"}, "unknown field"),
        ({"metadata.": "x"}, "unknown field"),
        ({"key.inside": "x"}, "unknown field"),
        ({"metadata.a.b": 1}, "metadata name"),
        ({'metadata.a"b': 1}, "metadata name"),
        ({"metadata.a'b": 1}, "metadata name"),
        ({"metadata.a\n": 1}, "metadata name"),
        ({"metadata.ü": 1}, "metadata name"),
        ({f"metadata.{'x' * 65}": 1}, "metadata name"),
        ({"key": {"$eq": "a"}}, "unknown operator '\\$eq'"),
        ({"key": {"like": "a"}}, "the operators are"),
        ({"key": {"gt": "a"}}, "key cannot be compared with gt"),
        ({"importance": {"contains": 1}}, "cannot be compared"),
        ({"tags": {"eq": "x"}}, "cannot be compared"),
        ({"key": 5}, "compared with text"),
        ({"key": None}, "compared with text"),
        ({"key": [None]}, "compared with text"),
        ({"key": {"contains": ["a"]}}, "compared with text"),
        ({"key": {"in": "abc"}}, "needs a list"),
        ({"key": {"in": 5}}, "needs a list"),
        ({"key": {"in": {"a": 1}}}, "needs a list"),
        ({"key": "a\0"}, "NUL"),
        ({"metadata.a": ["\ud800"]}, "lone surrogate"),
        ({"importance": "0.5"}, "compared with a number"),
        ({"importance": True}, "compared with a number"),
        ({"importance": float("nan")}, "compared with a number"),
        ({"importance": float("inf")}, "compared with a number"),
        ({"access_count": 10**400}, "compared with a number"),
        ({"metadata.n": 2**63}, "compared with a number"),
        ({"metadata.n": {"gt": True}}, "neither more nor less"),
        ({"metadata.n": None}, "compared with text"),
        ({"created_at": "yesterday"}, "not a time"),
        ({"created_at": True}, "not a time"),
        ({"created_at": 1e300}, "not a time"),
        ({"and": {"key": "a"}}, "takes a list"),
        ({"or": "x"}, "takes a list"),
        ({"and": ["x"]}, "a filter is a mapping"),
        ({"not": "x"}, "a filter is a mapping"),
        ("category = fact", "a filter is a mapping"),
        ([{"key": "a"}], "a filter is a mapping"),
        (nested(MAX_DEPTH + 1), "nested deeper"),
        ({"key": ["a"] * (MAX_VALUES + 1)}, "at most 1000"),
        ({"or": [{"key": "a"}] * MAX_PARTS}, "more than 500 parts"),
    ],
)
def test_an_invalid_filter_is_rejected_with_a_reason(plain: Any, reason: str) -> None:
    with pytest.raises(InvalidFilter, match=reason):
        parse_filter(plain)


def test_a_filter_at_the_limits_is_accepted() -> None:
    assert matches(memory(key="b"), parse_filter(nested(MAX_DEPTH - MAX_DEPTH % 2 - 1)))
    assert matches(memory(key="a"), parse_filter({"key": ["x"] * (MAX_VALUES - 1) + ["a"]}))
    assert matches(memory(key="a"), parse_filter({"or": [{"key": "a"}] * (MAX_PARTS - 1)}))


ATTACK = """metadata.a"') IN ('text'), 1=0)) OR user_id='bob' --"""


@pytest.mark.parametrize(
    ("field", "op", "value", "reason"),
    [
        (ATTACK, Op.EQ, "v", "metadata name"),
        ("key.x OR 1=1 --", Op.EQ, "v", "unknown field"),
        ("tags.x' OR 1=1 --", Op.CONTAINS, "v", "unknown field"),
        ("user_id", Op.EQ, "bob", "unknown field"),
        ("metadata", Op.EQ, "v", "unknown field"),
        (7, Op.EQ, "v", "unknown field"),
        ("key", "eq", "v", "an Op such as"),
        ("key", Op.GT, "v", "cannot be compared with gt"),
        ("key", Op.EQ, 5, "compared with text"),
        ("key", Op.EQ, ("a",), "compared with text"),
        ("key", Op.EQ, "a\0", "NUL"),
        ("key", Op.IN, "abc", "needs a tuple"),
        ("key", Op.IN, ["a"], "needs a tuple"),
        ("key", Op.IN, ("a", 5), "compared with text"),
        ("key", Op.IN, ("a",) * (MAX_VALUES + 1), "at most 1000"),
        ("importance", Op.EQ, True, "compared with a number"),
        ("importance", Op.EQ, float("nan"), "compared with a number"),
        ("metadata.n", Op.EQ, 2**63, "compared with a number"),
        ("metadata.n", Op.EQ, None, "compared with text"),
        ("metadata.n", Op.EQ, NOON, "compared with text"),
        ("metadata.n", Op.GT, True, "neither more nor less"),
        ("created_at", Op.EQ, "2026-03-15", "a datetime that has a zone"),
        ("created_at", Op.EQ, NOON.replace(tzinfo=None), "a datetime that has a zone"),
    ],
)
def test_an_invalid_comparison_cannot_be_constructed(field: Any, op: Any, value: Any, reason: str) -> None:
    with pytest.raises(InvalidFilter, match=reason):
        Where(field, op, value)


@pytest.mark.parametrize("parts", [None, "ab", [Where("key", Op.EQ, "a")], ({"key": "a"},), ("1 = 1",)], ids=str)
def test_only_filters_can_be_joined(parts: Any) -> None:
    for join in (And, Or, Not):
        with pytest.raises(InvalidFilter, match="a tuple of filters"):
            parse_filter(join(parts))


@given(st.text("abc'\"$.[]:;- \\%\0é茶"))
def test_a_metadata_name_has_no_special_characters(name: str) -> None:
    try:
        inside = Where(f"metadata.{name}", Op.EQ, "v").inside
    except InvalidFilter:
        return
    assert inside == name
    assert name.isascii()
    assert not set(name) & set("'\"$.[]:;\\%()")


def test_the_limits_apply_to_constructed_filters() -> None:
    comparison = Where("key", Op.EQ, "a")
    deep: Filter = comparison
    for _ in range(MAX_PARTS - 2):
        deep = Not(deep)
    with pytest.raises(InvalidFilter, match="nested deeper"):
        parse_filter(deep)
    with pytest.raises(InvalidFilter, match="more than 500 parts"):
        parse_filter(Or((comparison,) * MAX_PARTS))
    shared: Filter = comparison
    for _ in range(60):
        shared = And((shared, shared))
    with pytest.raises(InvalidFilter, match="more than 500 parts"):
        parse_filter(shared)


def test_a_filter_of_the_maximum_depth_can_be_parsed_again() -> None:
    plain: dict[str, Any] = {"importance": {"gt": 0.1, "lt": 0.9}}
    for _ in range(MAX_DEPTH):
        plain = {"not": [plain], "key": "a"}
    filter = parse_filter(plain)
    assert parse_filter(filter) is filter


def test_every_field_takes_its_operators_and_no_other() -> None:
    for (field, kind), op in product(FIELDS.items(), Op):
        name = "metadata.n" if kind is Kind.JSON else field
        value: Any = {Kind.NUMBER: 1, Kind.TIME: NOON}.get(kind, "x")
        if op in OPERATORS[kind]:
            assert where(name, op, [value] if op is Op.IN else value).op is op
        else:
            with pytest.raises(InvalidFilter):
                where(name, op, value)


def test_both_omits_filters_that_are_always_true() -> None:
    one, two = Where("key", Op.EQ, "a"), Where("key", Op.EQ, "b")
    assert both(EVERYTHING, one) == both(one, EVERYTHING) == one
    assert both(one, two) == And((one, two))


@pytest.mark.parametrize(
    ("stored", "comparison", "expected"),
    [
        (1, {"eq": 1.0}, True),
        (1, {"eq": True}, False),
        (True, {"eq": 1}, False),
        (True, {"in": [1, "true"]}, False),
        ("1", {"eq": 1}, False),
        (0, {"ne": False}, True),
        (None, {"ne": "x"}, True),
        (None, {"in": ["None", ""]}, False),
        ([1, "a"], {"contains": "a"}, True),
        ([1, "a"], {"contains": True}, False),
        ([1, "a"], {"eq": "a"}, False),
        ([1, "a"], {"in": ["a"]}, False),
        ([1, "a"], {"ne": "a"}, True),
        ([1, "a"], {"gt": 0}, False),
        ("abc", {"contains": "b"}, True),
        ("abc", {"contains": 1}, False),
        (5, {"contains": 5}, False),
        ("b", {"gt": "a"}, True),
        ("10", {"gt": 9}, False),
        ({"a": 1}, {"contains": "a"}, False),
    ],
)
def test_metadata_values_are_compared_by_type(stored: Any, comparison: Any, expected: bool) -> None:
    assert matches(memory(metadata={"x": stored}), parse_filter({"metadata.x": comparison})) is expected


@pytest.mark.parametrize("field", ["occurred_at", "valid_from", "valid_to", "expires_at", "key", "value"])
def test_a_missing_field_matches_ne_only(field: str) -> None:
    value: Any = NOON if FIELDS[field] is Kind.TIME else "x"
    for op in OPERATORS[FIELDS[field]]:
        comparison = where(field, op, [value] if op is Op.IN else value)
        assert matches(memory(), comparison) is (op is Op.NE)
        assert matches(memory(), Not(comparison)) is (op is not Op.NE)
