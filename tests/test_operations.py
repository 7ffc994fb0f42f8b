"""The answer of the extraction call: parsed leniently, in our own shape and in those of the design documents."""

from __future__ import annotations

import pytest

from recollect.model.extracted import FactOp
from recollect.model.memory import Category, MemoryType
from recollect.models.structured import InvalidAnswer
from recollect.write.operations import Operation, OperationParser

FULL = {
    "op": "update", "memory": 2, "lines": [1], "content": "The user lives in Oslo", "type": "semantic",
    "category": "identity", "key": "City", "value": "Oslo", "importance": 0.8, "confidence": 1, "when": "2024-05-05",
}  # fmt: skip


def parse(answer: object, *, lines: int = 3, memories: int = 5) -> list[Operation]:
    return list(OperationParser(lines, memories).parse(answer).value)


def test_a_complete_operation() -> None:
    [results] = parse({"operations": [FULL]})
    assert (results.op, results.memory, results.lines) == (FactOp.UPDATE, 2, (1,))
    assert (results.category, results.type, results.key, results.value) == (
        Category.IDENTITY, MemoryType.SEMANTIC, "city", "Oslo",
    )  # fmt: skip
    assert (results.importance, results.confidence, results.when) == (0.8, 1.0, "2024-05-05")


def test_an_empty_list_is_an_answer() -> None:
    assert parse({"operations": []}) == []
    assert parse({}) == []


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (["The user likes tea"], (FactOp.ADD, "The user likes tea")),
        ([{"fact": "The user likes tea", "type": "PREFERENCE"}], (FactOp.ADD, "The user likes tea")),
        ({"facts": [{"content": "The user likes tea"}]}, (FactOp.ADD, "The user likes tea")),
        ({"memories": [{"content": "Likes tea", "turns": [1]}]}, (FactOp.ADD, "Likes tea")),
        ({"memory": [{"id": "2", "text": "Likes tea", "event": "UPDATE"}]}, (FactOp.UPDATE, "Likes tea")),
        ({"memory": [{"id": "2", "text": "Likes tea", "event": "DELETE"}]}, (FactOp.END, "Likes tea")),
        ([{"key": "drink", "value": "tea", "category": "preference"}], (FactOp.ADD, "drink: tea")),
        (
            {"memories": [{"content": "No longer drinks tea", "change": "ended"}]},
            (FactOp.END, "No longer drinks tea"),
        ),
    ],
)
def test_the_shapes_of_the_documents_are_understood(answer: object, expected: tuple[FactOp, str]) -> None:
    [results] = parse(answer)
    assert (results.op, results.content) == expected


def test_a_none_event_changes_nothing() -> None:
    [results] = parse({"memory": [{"id": "0", "text": "Likes tea", "event": "NONE"}]})
    assert results.op is None


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"lines": [9]}, "there is no line 9"),
        ({"memory": 9}, "there is no memory 9"),
        ({"memory": None}, "an update needs the number of a memory"),
    ],
)
def test_an_unknown_line_or_memory_is_complained_about_and_the_fact_still_returned(
    wrong: dict[str, object], complaint: str
) -> None:
    parsed = OperationParser(3, 5).parse({"operations": [{**FULL, **wrong}]})
    assert complaint in parsed.complaints[0]
    assert [each.content for each in parsed.value] == ["The user lives in Oslo"]


@pytest.mark.parametrize("answer", ["prose", 7, None, {"operations": "none"}, {"operations": [7, None]}])
def test_no_list_of_operations_is_an_invalid_answer(answer: object) -> None:
    with pytest.raises(InvalidAnswer):
        parse(answer)


@pytest.mark.parametrize(
    ("said", "share"), [("high", 0.8), (8, 0.8), ("90", 0.9), (True, 0.5), (-1, 0.5), (None, 0.5)]
)
def test_shares_are_read_however_a_model_writes_them(said: object, share: float) -> None:
    [results] = parse([{"content": "Likes tea", "importance": said}])
    assert results.importance == share
