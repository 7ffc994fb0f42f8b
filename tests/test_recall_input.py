"""What recall and search are asked with: what cannot be used is refused by name, all else is answered."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from recall_samples import TEA, opened, texts, user

from recollect import Memory
from recollect.errors import InvalidFilter, InvalidInput, InvalidText
from recollect.model.outcome import RecallOutcome


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with opened(tmp_path) as memory:
        yield memory


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"limit": -1}, InvalidInput, "limit"),
        ({"limit": 1001}, InvalidInput, "limit"),
        ({"limit": True}, InvalidInput, "limit"),
        ({"limit": "3"}, InvalidInput, "limit"),
        ({"min_score": -0.1}, InvalidInput, "min_score"),
        ({"min_score": 1.1}, InvalidInput, "min_score"),
        ({"min_score": float("nan")}, InvalidInput, "min_score"),
        ({"min_score": "high"}, InvalidInput, "min_score"),
        ({"at": "yesterday"}, InvalidInput, "at"),
        ({"at": ()}, InvalidInput, "at"),
        ({"as_of": "2026-13-01"}, InvalidInput, "as_of"),
        ({"as_of": {1, 2}}, InvalidInput, "as_of"),
        ({"filters": {"colour": "green"}}, InvalidFilter, "colour"),
        ({"filters": 7}, InvalidFilter, "filter"),
        ({"user_id": ""}, InvalidInput, "user"),
        ({"user_id": None}, InvalidInput, "user"),
        ({"session_id": 7}, InvalidInput, "session"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused_with_its_name(
    memory: Memory, wrong: dict[str, Any], error: type[Exception], says: str
) -> None:
    for ask in (memory.recall, memory.search):
        with pytest.raises(error, match=says):
            ask(TEA, **{"user_id": "a", **wrong})


@pytest.mark.parametrize("messages", [None, 7, b"tea", [TEA], [None], [[user(TEA)]], {1, 2}], ids=repr)
def test_messages_of_the_wrong_kind_are_refused(memory: Memory, messages: Any) -> None:
    with pytest.raises(InvalidInput, match="message"):
        memory.recall(messages, user_id="a")


def test_a_search_for_nothing_is_refused_and_one_for_anything_else_is_answered(memory: Memory) -> None:
    memory.add("green tea", user_id="a")
    for query in ("", "  ", None, 7):
        with pytest.raises((InvalidText, InvalidInput)):
            memory.search(query, user_id="a")  # type: ignore[arg-type]
    for query in ("?!", "\u202e\u200b", "🍵", "tea " * 5000, "'; DROP TABLE memories; --"):
        memory.search(query, user_id="a")
        assert memory.recall(f"{query} my tea", user_id="a").outcome is RecallOutcome.USED


def test_times_are_taken_in_any_zone_and_as_text(memory: Memory) -> None:
    memory.add("green tea", user_id="a")
    for moment in ("2030-01-01", "2030-01-01T10:00:00+02:00", datetime(2030, 1, 1), datetime(2030, 1, 1, tzinfo=UTC)):
        assert texts(memory.recall(TEA, user_id="a", at=moment, as_of=moment)) == ["green tea"]
    assert texts(memory.recall(TEA, user_id="a", at=2_000_000_000, as_of=2e9)) == ["green tea"]  # type: ignore[arg-type]
