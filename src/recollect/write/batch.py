"""Batches of turns to learn from, and the ranges that were skipped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from recollect.model.memory import MemoryRecord
from recollect.model.turn import Conversation, Turn

_RANGE = re.compile(r"turns (\d+) to (\d+)")


@dataclass(frozen=True, slots=True)
class Batch:
    """Turns to learn from, the turns before them for context, and the stored memories related to them.

    `retry` says that the turns were skipped before, because the LLM gave no usable answer.
    """

    turns: tuple[Turn, ...]
    context: tuple[Turn, ...] = ()
    memories: tuple[MemoryRecord, ...] = ()
    retry: bool = False

    @property
    def turn_range_text(self) -> str:
        """Return the range of turns as the `why` of history, which `parse_turn_range` reads."""
        return f"turns {self.turns[0].position} to {self.turns[-1].position}" if self.turns else ""


def parse_turn_range(text: str) -> range | None:
    """Return the positions in `Batch.turn_range_text`; None for any other text."""
    match = _RANGE.fullmatch(text)
    return range(int(match[1]), int(match[2]) + 1) if match else None


TurnRange: TypeAlias = tuple[int, int]
_SKIPPED_KEY = "passed_over"
_MAX_SKIPPED = 100


def skipped_ranges(conversation: Conversation) -> list[TurnRange]:
    """Return the skipped ranges of turns, the oldest first."""
    stored = conversation.metadata.get(_SKIPPED_KEY)
    return [(first, last) for first, last in stored] if isinstance(stored, (list, tuple)) else []


def with_skipped_range(conversation: Conversation, first: int, last: int) -> Mapping[str, Any]:
    """Return the conversation's metadata with one more range; the oldest is dropped if there are too many."""
    return _metadata_with(conversation, [*skipped_ranges(conversation), (first, last)][-_MAX_SKIPPED:])


def without_first_skipped(conversation: Conversation) -> Mapping[str, Any]:
    """Return the conversation's metadata without the oldest range."""
    return _metadata_with(conversation, skipped_ranges(conversation)[1:])


def _metadata_with(conversation: Conversation, ranges: list[TurnRange]) -> Mapping[str, Any]:
    metadata = {name: value for name, value in conversation.metadata.items() if name != _SKIPPED_KEY}
    return {**metadata, _SKIPPED_KEY: [list(each) for each in ranges]} if ranges else metadata
