"""Turns that an LLM could not be made to understand: passed over, so that others are not held up, and remembered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from recollect.model.turn import Conversation

TurnRange: TypeAlias = tuple[int, int]
_SKIPPED_KEY = "passed_over"
_MAX_SKIPPED = 100


def skipped_ranges(conversation: Conversation) -> list[TurnRange]:
    """The ranges of turns that were passed over, the oldest first."""
    stored = conversation.metadata.get(_SKIPPED_KEY)
    return [(first, last) for first, last in stored] if isinstance(stored, (list, tuple)) else []


def with_skipped_range(conversation: Conversation, first: int, last: int) -> Mapping[str, Any]:
    """The conversation's metadata with one more range, the oldest left out if they are too many."""
    return _metadata_with(conversation, [*skipped_ranges(conversation), (first, last)][-_MAX_SKIPPED:])


def without_first_skipped(conversation: Conversation) -> Mapping[str, Any]:
    """The conversation's metadata once the oldest range has been understood after all."""
    return _metadata_with(conversation, skipped_ranges(conversation)[1:])


def _metadata_with(conversation: Conversation, ranges: list[TurnRange]) -> Mapping[str, Any]:
    metadata = {name: value for name, value in conversation.metadata.items() if name != _SKIPPED_KEY}
    return {**metadata, _SKIPPED_KEY: [list(each) for each in ranges]} if ranges else metadata
