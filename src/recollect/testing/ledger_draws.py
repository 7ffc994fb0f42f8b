"""What the random work on ledgers is drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from recollect.model.memory import Category, Status
from recollect.model.scope import Level, Scope
from recollect.testing.suite_samples import NOON

# Few of everything, so that what is drawn meets what is there.
USERS = ("ann", "bob")
WORDS = ("tea", "TEA", "green tea", "milk  jug", "Milk jug", "coffee", "a café", "茶が好き", "tea 'OR' \"1\"=1 %")
KEYS = (None, "a", "b", "A")
PLACES = (("", "", Level.USER), ("p", "", Level.PROJECT), ("p", "s", Level.SESSION), ("q", "s", Level.SESSION))
METADATA: tuple[dict[str, Any], ...] = (
    {},
    {"n": 1},
    {"n": "1"},
    {"n": True},
    {"n": [1, "x"]},
    {"n": 1.5, "m": None},
    {"n": "xx", "m": {"d": 1}},
)
TAGS = ((), ("x",), ("x", "y"))
EVIDENCE = ((), (), ("t1",), ("t1", "t2", "t1"))

users = st.sampled_from(USERS)
words = st.sampled_from(WORDS)
places = st.sampled_from(PLACES)
numbers = st.integers(0, 40)
scopes = st.builds(Scope, users, st.sampled_from(["", "p", "q"]), st.sampled_from(["", "s", "t"]))
drafts = st.fixed_dictionaries(
    {
        "content": words,
        "key": st.sampled_from(KEYS),
        "category": st.sampled_from([Category.FACT, Category.FACT, Category.PREFERENCE, Category.TURN]),
        "importance": st.sampled_from([0.0, 0.25, 0.5]),
        "status": st.sampled_from([Status.ACTIVE] * 5 + [Status.REVIEW]),
        "tags": st.sampled_from(TAGS),
        "evidence": st.sampled_from(EVIDENCE),
        "metadata": st.sampled_from(METADATA),
        "created_at": st.integers(0, 3).map(lambda day: NOON + timedelta(days=day)),
        "valid_from": st.just(NOON),
        "expires_at": st.sampled_from([None, NOON]),
    }
)
edits = st.fixed_dictionaries(
    {},
    optional={
        "content": words | st.sampled_from([None, "a\0b"]),
        "key": st.sampled_from(KEYS),
        "category": st.sampled_from(["fact", "preference", "gossip"]),
        "status": st.sampled_from(["active", "review", "forgotten"]),
        "importance": st.sampled_from([0.0, 0.75]),
        "tags": st.sampled_from([["x"], []]),
        "evidence": st.sampled_from([["t2"], []]),
        "metadata": st.sampled_from(METADATA),
        "expires_at": st.sampled_from([None, "2026-03-15T12:00:00Z", "soon"]),
    },
)
versions = st.sampled_from([None, None, None, 1, 2])
with_vector = st.booleans()
steps_of_change = st.one_of(
    st.tuples(st.just("add"), places, drafts, with_vector),
    st.tuples(st.just("update"), numbers, edits, versions, with_vector),
    st.tuples(st.just("supersede"), numbers, places, drafts, versions, with_vector),
    st.tuples(st.just("forget"), numbers, versions),
    st.tuples(st.just("restore"), numbers, versions),
)
_texts = st.sampled_from([*WORDS, "a", "b", "x", "n", "fact", "p", "s", "", "1", "xx"])
_values = st.one_of(_texts, st.sampled_from([0, 1, 1.5, True, False]))
_whole = st.sampled_from([0, 0.25, 0.5, 1, 2, 3])
_times = st.integers(-1, 3).map(lambda day: NOON + timedelta(days=day))
_orders = ("eq", "ne", "gt", "gte", "lt", "lte")
_named = ("content", "key", "category", "value", "source", "trust", "level", "project_id", "session_id")


def _compared(fields: Sequence[str], ops: Sequence[str], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda field, op, value: {field: {op: value}}, st.sampled_from(fields), st.sampled_from(ops), values
    )


comparisons = st.one_of(
    _compared(_named, ("eq", "ne", "contains"), _texts),
    _compared(("key", "tags", "content"), ("in",), st.lists(_texts, max_size=3)),
    _compared(("importance", "version", "access_count"), _orders, _whole),
    _compared(("created_at", "expires_at", "valid_to"), _orders, _times),
    _compared(("tags",), ("contains",), _texts),
    _compared(("metadata.n",), (*_orders, "contains"), _values),
    _compared(("metadata.n",), ("in",), st.lists(_values, max_size=3)),
)
filters = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds(lambda parts: {"and": parts}, st.lists(inner, max_size=3)),
        st.builds(lambda parts: {"or": parts}, st.lists(inner, max_size=3)),
        st.builds(lambda part: {"not": part}, inner),
    ),
    max_leaves=4,
)
