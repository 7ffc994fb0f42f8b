"""Turns that an LLM could not be made to understand: passed over, so that others are not held up, and remembered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from recollect.model.turn import Conversation

Range: TypeAlias = tuple[int, int]
_NAME = "passed_over"
_MOST = 100


def passed_over(conversation: Conversation) -> list[Range]:
    """The ranges of turns that were passed over, the oldest first."""
    held = conversation.metadata.get(_NAME)
    return [(first, last) for first, last in held] if isinstance(held, (list, tuple)) else []


def with_range(conversation: Conversation, first: int, last: int) -> Mapping[str, Any]:
    """The conversation's metadata with one more range, the oldest left out if they are too many."""
    return _with(conversation, [*passed_over(conversation), (first, last)][-_MOST:])


def without_first(conversation: Conversation) -> Mapping[str, Any]:
    """The conversation's metadata once the oldest range has been understood after all."""
    return _with(conversation, passed_over(conversation)[1:])


def _with(conversation: Conversation, ranges: list[Range]) -> Mapping[str, Any]:
    others = {name: value for name, value in conversation.metadata.items() if name != _NAME}
    return {**others, _NAME: [list(each) for each in ranges]} if ranges else others
