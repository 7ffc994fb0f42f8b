"""Filters mean the same in every ledger: each operator on each kind of field, unset fields, types, tricks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recollect.ledger.protocol import Ledger
from recollect.model.filters import matches, parse_filter
from recollect.model.memory import Category
from recollect.model.query import EVERYTHING, FIELDS, Kind
from recollect.testing.suite_filter_cases import CASES, SEEN, TEXTUAL, TRICKS, VALUES, comparisons, three
from recollect.testing.suite_samples import ALL, ANN, BOB, ODD_TEXTS, add, listed, memory


class FilterSuite:
    """What passes a filter."""

    @pytest.mark.parametrize("field", VALUES)
    async def test_a_comparison_holds_where_the_model_says_it_does(self, ledger: Ledger, field: str) -> None:
        records = three()
        await add(ledger, *records)
        for filter in comparisons(field):
            expected = {record.content for record in records if matches(record, filter)}
            assert await listed(ledger, ANN, filter) == expected, filter
            assert await ledger.count(ANN, replace(ALL, filter=filter)) == len(expected), filter

    @pytest.mark.parametrize("theme", CASES)
    async def test_a_filter_passes_what_it_says(self, ledger: Ledger, theme: str) -> None:
        records = three()
        await add(ledger, *records)
        by_content = {record.content: record.id.removeprefix("id-") for record in records}
        for plain, names in CASES[theme]:
            assert {by_content[content] for content in await listed(ledger, ANN, plain)} == names, plain

    @pytest.mark.parametrize("theme", CASES)
    async def test_recall_passes_the_same(self, ledger: Ledger, theme: str) -> None:
        records = [
            memory(each.content, id=each.id, **{name: getattr(each, name) for name in SEEN}) for each in three()
        ]
        # RecallRequest sees what holds now, whatever else the samples say of their times.
        records = [replace(record, valid_from=None, valid_to=None, expires_at=None) for record in records]
        await add(ledger, *records)
        everyone = await ledger.matching(ANN, EVERYTHING)
        for plain, _ in CASES[theme]:
            filter = parse_filter(plain)
            expected = {record.id for record in records if matches(record, filter)}
            rows = await ledger.matching(ANN, filter)
            assert {each.record.id for each in await ledger.fetch(ANN, rows, filter=EVERYTHING)} == expected, plain
            assert {each.record.id for each in await ledger.fetch(ANN, everyone, filter=filter)} == expected, plain

    @pytest.mark.parametrize(
        "field", [f"{name}{'.m' * (kind is Kind.JSON)}" for name, kind in FIELDS.items() if kind in TEXTUAL]
    )
    async def test_no_value_widens_the_filter_or_the_scope(self, ledger: Ledger, field: str) -> None:
        await add(ledger, *three())
        await add(ledger, memory("bob's secret", scope=BOB, key="k", tags=("t",), metadata={"m": "x"}))
        for trick in TRICKS:
            assert await listed(ledger, ANN, {field: [trick]}) == set(), trick
            assert await listed(ledger, ANN, {field: trick}) == set(), trick
            assert "bob's secret" not in await listed(ledger, ANN, {"not": {field: trick}}), trick

    @pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
    async def test_any_text_can_be_filtered_for(self, ledger: Ledger, text: str) -> None:
        odd = memory(text, key=text, value=text, source=text, tags=(text,), evidence=(text,), metadata={"m": text})
        await add(ledger, odd, memory("plain", key="k", value="v", source="s", tags=("t",), metadata={"m": "x"}))
        for field in ("content", "key", "value", "source", "tags", "evidence", "metadata.m"):
            for filter in ({field: text}, {field: {"contains": text}}, {field: [text, "neither"]}):
                assert await listed(ledger, ANN, filter) == {text}
        assert await listed(ledger, ANN, {"metadata.m": {"contains": text[1:-1]}}) == {text}

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
