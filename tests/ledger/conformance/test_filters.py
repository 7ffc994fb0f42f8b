"""Memories that differ in every field, and what filters must pass of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import chain, product
from typing import Any

from recollect.ledger.codec import TIME_FIELDS
from recollect.ledger.ledger import Ledger
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust
from recollect.model.query import EVERYTHING, FIELDS, OPERATORS, Kind, Op, Where, matches, parse_filter
from recollect.model.scope import Level, Scope
from tests.support.ledger_samples import ALL, ANN, BOB, NOON, ODD_TEXTS, add, listed, memory

DAY = timedelta(days=1)


def three() -> list[MemoryRecord]:
    """Three memories that differ in every field a filter can name; `bare` leaves unset what can be."""
    tea = memory(
        "green tea",
        id="id-tea",
        scope=Scope("ann", "p", "s"),
        level=Level.SESSION,
        key="drink",
        value="tea",
        source="chat",
        importance=0.25,
        confidence=0.5,
        tags=("hot", "leaf"),
        evidence=("turn-1", "turn-2"),
        access_count=3,
        version=2,
        **dict.fromkeys(TIME_FIELDS, NOON),
        metadata={"n": 1, "flag": True, "word": "one", "list": ["a", 1, True], "x": 1.5, "null": None, "d": {"a": 1}},
    )
    milk = memory(
        "cold milk, no tea",
        id="id-milk",
        scope=Scope("ann", "q"),
        level=Level.PROJECT,
        type=MemoryType.EPISODIC,
        category=Category.EVENT,
        status=Status.REVIEW,
        key="food",
        value="milk",
        source="import",
        trust=Trust.LOW,
        importance=0.75,
        confidence=1.0,
        tags=("cold",),
        evidence=("turn-3",),
        access_count=10,
        version=5,
        **dict.fromkeys(TIME_FIELDS, NOON + DAY),
        metadata={"n": "1", "flag": "true", "word": ["one"], "list": "a", "x": 10},
    )
    bare = memory("bare", id="id-bare", created_at=NOON - DAY, updated_at=NOON - DAY, importance=0.0)
    return [tea, milk, bare]


# For each field: a value `tea` has, one that `milk` has.
VALUES: dict[str, tuple[Any, Any]] = {
    "id": ("id-tea", "id-milk"),
    "project_id": ("p", "q"),
    "session_id": ("s", ""),
    "level": ("session", "project"),
    "type": ("semantic", "episodic"),
    "category": ("fact", "event"),
    "status": ("active", "review"),
    "content": ("green tea", "cold milk, no tea"),
    "key": ("drink", "food"),
    "value": ("tea", "milk"),
    "source": ("chat", "import"),
    "trust": ("high", "low"),
    "importance": (0.25, 0.75),
    "confidence": (0.5, 1),
    "access_count": (3, 10),
    "version": (2, 5),
    **{name: (NOON, NOON + DAY) for name, kind in FIELDS.items() if kind is Kind.TIME},
    "tags": ("hot", "cold"),
    "evidence": ("turn-1", "turn-3"),
    "metadata.n": (1, "1"),
    "metadata.x": (1.5, 10),
    "metadata.flag": (True, "true"),
    "metadata.word": ("one", "none"),
    "metadata.list": ("a", 1),
}
ORDERING = (Op.GT, Op.GTE, Op.LT, Op.LTE)


def comparisons(field: str) -> list[Where]:
    """Every operator the field takes, with each of its values."""
    tea, milk = VALUES[field]
    results = []
    for op in sorted(OPERATORS[FIELDS[field.partition(".")[0]]]):
        values = [(tea, milk), (milk,)] if op is Op.IN else [tea, milk]
        results += [Where(field, op, each) for each in values if not (isinstance(each, bool) and op in ORDERING)]
    return results


CASES: dict[str, list[tuple[Any, set[str]]]] = {
    "joined": [
        ({}, {"tea", "milk", "bare"}),
        ({"and": []}, {"tea", "milk", "bare"}),
        ({"or": []}, set()),
        ({"not": {"or": []}}, {"tea", "milk", "bare"}),
        ({"or": [{"key": "drink"}, {"key": "food"}]}, {"tea", "milk"}),
        ({"and": [{"content": {"contains": "tea"}}, {"not": {"key": "drink"}}]}, {"milk"}),
        ({"not": {"or": [{"tags": "hot"}, {"metadata.n": "1"}]}}, {"bare"}),
        ({"not": {"and": [{"content": {"contains": "tea"}}, {"version": 2}]}}, {"milk", "bare"}),
        ({"not": {"not": {"not": {"key": "drink"}}}}, {"milk", "bare"}),
        ({"or": [{"and": [{"tags": "hot"}, {"tags": "leaf"}]}, {"expires_at": {"gt": NOON}}]}, {"tea", "milk"}),
    ],
    "texts": [
        ({"key": "drink"}, {"tea"}),
        ({"key": {"ne": "drink"}}, {"milk", "bare"}),
        ({"key": ["drink", "food"]}, {"tea", "milk"}),
        ({"key": []}, set()),
        ({"not": {"key": ["drink"]}}, {"milk", "bare"}),
        ({"not": {"key": {"ne": "drink"}}}, {"tea"}),
        ({"content": {"contains": "tea"}}, {"tea", "milk"}),
        ({"content": {"contains": "TEA"}}, set()),
        ({"content": {"contains": ""}}, {"tea", "milk", "bare"}),
        ({"value": {"contains": "e"}}, {"tea"}),
        ({"source": ""}, {"bare"}),
        ({"source": {"ne": "chat"}}, {"milk", "bare"}),
        ({"trust": "high"}, {"tea", "bare"}),
        ({"trust": ["high"]}, {"tea", "bare"}),
        ({"source": [""]}, {"bare"}),
    ],
    "numbers": [
        ({"importance": {"gt": 0.25}}, {"milk"}),
        ({"importance": {"gte": 0.25}}, {"tea", "milk"}),
        ({"importance": {"lt": 0.25}}, {"bare"}),
        ({"importance": {"gte": 0, "lt": 0.5}}, {"tea", "bare"}),
        ({"access_count": {"gt": 2.5}}, {"tea", "milk"}),
        ({"access_count": 3.0}, {"tea"}),
        ({"access_count": [3.0, 9.5]}, {"tea"}),
        ({"version": {"lte": 2}}, {"tea", "bare"}),
        ({"version": {"lt": -1e300}}, set()),
        ({"confidence": 1}, {"milk", "bare"}),
    ],
    "times": [
        ({"expires_at": {"lt": "2100-01-01"}}, {"tea", "milk"}),
        ({"not": {"expires_at": {"lt": "2100-01-01"}}}, {"bare"}),
        ({"expires_at": {"ne": NOON}}, {"milk", "bare"}),
        ({"created_at": NOON.isoformat()}, {"tea"}),
        ({"created_at": {"gt": NOON - timedelta(microseconds=1), "lt": NOON + timedelta(microseconds=1)}}, {"tea"}),
        ({"created_at": {"gt": "0001-01-01", "lte": "9999-12-31"}}, {"tea", "milk", "bare"}),
    ],
    "lists": [
        ({"tags": "hot"}, {"tea"}),
        ({"tags": "ho"}, set()),
        ({"tags": ["cold", "leaf"]}, {"tea", "milk"}),
        ({"not": {"tags": "hot"}}, {"milk", "bare"}),
    ],
    "numbers in metadata": [
        ({"metadata.n": 1}, {"tea"}),
        ({"metadata.n": 1.0}, {"tea"}),
        ({"metadata.n": "1"}, {"milk"}),
        ({"metadata.n": True}, set()),
        ({"metadata.n": {"ne": 1}}, {"milk", "bare"}),
        ({"metadata.n": [1, "1"]}, {"tea", "milk"}),
        ({"metadata.n": [True, "2"]}, set()),
        ({"metadata.n": {"gt": 0}}, {"tea"}),
        ({"metadata.n": {"gte": "0"}}, {"milk"}),
        ({"metadata.x": {"lt": 10.5}}, {"tea", "milk"}),
        ({"metadata.x": {"gt": "0"}}, set()),
        ({"metadata.x": {"gt": 2}}, {"milk"}),
    ],
    "booleans in metadata": [
        ({"metadata.flag": True}, {"tea"}),
        ({"metadata.flag": False}, set()),
        ({"metadata.flag": {"ne": True}}, {"milk", "bare"}),
        ({"metadata.flag": 1}, set()),
        ({"metadata.flag": "true"}, {"milk"}),
        ({"metadata.flag": [True]}, {"tea"}),
    ],
    "texts in metadata": [
        ({"metadata.word": "one"}, {"tea"}),
        ({"metadata.word": {"contains": "one"}}, {"tea", "milk"}),
        ({"metadata.word": {"contains": "on"}}, {"tea"}),
        ({"metadata.word": ["one"]}, {"tea"}),
    ],
    "lists in metadata": [
        ({"metadata.list": {"contains": "a"}}, {"tea", "milk"}),
        ({"metadata.list": {"contains": 1}}, {"tea"}),
        ({"metadata.list": {"contains": True}}, {"tea"}),
        ({"metadata.list": {"contains": False}}, set()),
        ({"metadata.list": "a"}, {"milk"}),
        ({"metadata.list": {"ne": "a"}}, {"tea", "bare"}),
    ],
    "nothing in metadata": [
        ({"metadata.null": {"ne": "x"}}, {"tea", "milk", "bare"}),
        ({"metadata.null": "null"}, set()),
        ({"metadata.null": ["null", 0, False, ""]}, set()),
        ({"metadata.d": '{"a":1}'}, set()),
        ({"metadata.d": {"contains": "a"}}, set()),
        ({"metadata.missing": {"gt": 0}}, set()),
        ({"metadata.missing": {"ne": 0}}, {"tea", "milk", "bare"}),
    ],
}
TEXTUAL = (Kind.TEXT, Kind.TEXTS, Kind.JSON)
TRICKS = [
    "' OR '1'='1", "') OR 1=1 --", '" OR ""="', "x' UNION SELECT 1 --", "%", "_", "*", "$", "$.metadata",
    "\\", "\\'", "null", "NULL", "true", ":user", "$1", "?", "{user}", "[]", '["id-tea"]', "or true", "a:b", "\u202e",
]  # fmt: skip

# What a memory may have without leaving the user's own place or ceasing to be active.
SEEN = (
    "type", "category", "key", "value", "source", "trust", "importance", "confidence", "tags", "evidence",
    "access_count", "version", "created_at", "updated_at", "occurred_at", "valid_from", "valid_to", "expires_at",
    "last_accessed_at", "metadata",
)  # fmt: skip


class TestFilter:
    """What passes a filter."""

    async def test_a_comparison_is_true_where_the_model_says_so(self, ledger: Ledger) -> None:
        records = three()
        await add(ledger, *records)
        for filter in (each for field in VALUES for each in comparisons(field)):
            expected = {record.content for record in records if matches(record, filter)}
            assert await listed(ledger, ANN, filter) == expected, filter
            assert await ledger.count(ANN, replace(ALL, filter=filter)) == len(expected), filter

    async def test_a_filter_passes_what_it_says(self, ledger: Ledger) -> None:
        records = three()
        await add(ledger, *records)
        by_content = {record.content: record.id.removeprefix("id-") for record in records}
        for plain, names in chain.from_iterable(CASES.values()):
            assert {by_content[content] for content in await listed(ledger, ANN, plain)} == names, plain

    async def test_recall_passes_the_same(self, ledger: Ledger) -> None:
        records = [
            memory(each.content, id=each.id, **{name: getattr(each, name) for name in SEEN}) for each in three()
        ]
        # Recall sees what holds now, whatever else the samples say of their times.
        records = [replace(record, valid_from=None, valid_to=None, expires_at=None) for record in records]
        await add(ledger, *records)
        everyone = await ledger.matching(ANN, EVERYTHING)
        for plain, _ in chain.from_iterable(CASES.values()):
            filter = parse_filter(plain)
            expected = {record.id for record in records if matches(record, filter)}
            rows = await ledger.matching(ANN, filter)
            assert {each.record.id for each in await ledger.fetch(ANN, rows, filter=EVERYTHING)} == expected, plain
            assert {each.record.id for each in await ledger.fetch(ANN, everyone, filter=filter)} == expected, plain

    async def test_no_value_widens_the_filter_or_the_scope(self, ledger: Ledger) -> None:
        await add(ledger, *three())
        await add(ledger, memory("bob's secret", scope=BOB, key="k", tags=("t",), metadata={"m": "x"}))
        fields = [f"{name}{'.m' * (kind is Kind.JSON)}" for name, kind in FIELDS.items() if kind in TEXTUAL]
        for field, trick in product(fields, TRICKS):
            assert await listed(ledger, ANN, {field: [trick]}) == set(), trick
            assert await listed(ledger, ANN, {field: trick}) == set(), trick
            assert "bob's secret" not in await listed(ledger, ANN, {"not": {field: trick}}), trick

    async def test_any_text_can_be_filtered_for(self, ledger: Ledger) -> None:
        for name, text in ODD_TEXTS.items():
            odd = dict.fromkeys(("key", "value", "source"), text) | {"tags": (text,), "evidence": (text,)}
            await add(ledger, memory(text, scope=Scope(name), metadata={"m": text}, **odd))
            await add(ledger, memory("plain", scope=Scope(name), key="k", tags=("t",), metadata={"m": "x"}))
            for field in ("content", "key", "value", "source", "tags", "evidence", "metadata.m"):
                for filter in ({field: text}, {field: {"contains": text}}, {field: [text, "neither"]}):
                    assert await listed(ledger, Scope(name), filter) == {text}
            assert await listed(ledger, Scope(name), {"metadata.m": {"contains": text[1:-1]}}) == {text}

    async def test_any_metadata_name_that_may_be_filtered_can_be(self, ledger: Ledger) -> None:
        names = ["a b", "a-b", "_a", "0", "9-9", "select", "A", "a", "x" * 64]
        await add(ledger, *(memory(f"{n}", metadata={name: 1}) for n, name in enumerate(names)))
        everyone = {f"{n}" for n in range(len(names))}
        for n, name in enumerate(names):
            assert await listed(ledger, ANN, {f"metadata.{name}": 1}) == {f"{n}"}, name
            assert await listed(ledger, ANN, {f"metadata.{name}": {"ne": 1}}) == everyone - {f"{n}"}, name

    async def test_odd_metadata_names_do_not_disturb_a_filter(self, ledger: Ledger) -> None:
        odd = {'a"b': 1, "a.b": 1, "$": 1, "[0]": 1, "a\\": 1, "": 1, "'": 1, "b": {"a": 1}}
        await add(ledger, memory("tea", metadata={**odd, "a": 2}), memory("milk", metadata={"a": 1}))
        assert await listed(ledger, ANN, {"metadata.a": 1}) == {"milk"}

    async def test_numbers_are_compared_by_value(self, ledger: Ledger) -> None:
        numbers = [-1e300, -(2**62), -1, 0, 1e-300, 0.1, 2**31, 2**53, 2**53 + 1, 1e22]
        await add(ledger, *(memory(f"{n}", metadata={"n": n}) for n in numbers), memory("text", metadata={"n": "0"}))
        for n, number in enumerate(numbers):
            assert await listed(ledger, ANN, {"metadata.n": number}) == {f"{number}"}
            assert await listed(ledger, ANN, {"metadata.n": [number]}) == {f"{number}"}
            above = {f"{each}" for each in numbers[n + 1 :]}
            assert await listed(ledger, ANN, {"metadata.n": {"gt": number}}) == above
            assert (
                await listed(ledger, ANN, {"metadata.n": {"lte": number}}) == {f"{each}" for each in numbers} - above
            )

    async def test_texts_are_ordered_by_their_characters(self, ledger: Ledger) -> None:
        words = ["B", "a", "b", "é", "z", "ä", "Z", "~", "アン", "\U0001f375", "\uffee"]
        await add(ledger, *(memory(word, category=Category.TURN, metadata={"w": word}) for word in words))
        for bound in words:
            below = {word for word in words if word < bound}
            assert await listed(ledger, ANN, {"metadata.w": {"lt": bound}}) == below
            assert await listed(ledger, ANN, {"metadata.w": {"gte": bound}}) == set(words) - below

    async def test_a_thousand_values_can_be_asked_for_at_once(self, ledger: Ledger) -> None:
        await add(ledger, *three())
        many = [f"no {n}" for n in range(999)]
        assert await listed(ledger, ANN, {"key": [*many, "drink"]}) == {"green tea"}
        assert await listed(ledger, ANN, {"tags": [*many, "cold"]}) == {"cold milk, no tea"}
        assert await listed(ledger, ANN, {"metadata.n": [*many, 1]}) == {"green tea"}

    async def test_a_filter_of_many_parts_can_be_held(self, ledger: Ledger) -> None:
        await add(ledger, *three())
        many = [{"metadata.n": n} for n in range(2, 400)]
        assert await listed(ledger, ANN, {"or": [*many, {"key": "drink"}]}) == {"green tea"}

    async def test_a_filter_nested_deep_can_be_held(self, ledger: Ledger) -> None:
        await add(ledger, *three())
        deep: Any = {"key": "drink"}
        for _ in range(15):
            deep = {"not": {"and": [deep, {"or": [deep]}]}} if len(str(deep)) < 2000 else {"not": deep}
        assert await listed(ledger, ANN, deep) == {"cold milk, no tea", "bare"}
