"""Batches of turns to extract facts from, and the ranges of turns that were skipped."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.model.change import Author, HistoryEntry
from recollect.model.ids import new_id
from recollect.model.memory import MemoryRecord
from recollect.model.text import head_and_tail
from recollect.model.turn import Conversation, Turn

MAX_TURN_CHARS = 1 << 15
# The range of turns in the batch id of history; entries of earlier versions have it in the reason instead.
_BATCH_RANGE = lazy_pattern(r"-turns-(\d+)-(\d+)$")
_REASON_RANGE = lazy_pattern(r"^turns (\d+) to (\d+)$")


@frozen_dataclass
class Batch:
    """Turns to extract facts from, the preceding turns as context, and the related stored memories.

    `retry` is set if the turns were skipped before, because the LLM gave no usable answer.
    """

    turns: tuple[Turn, ...]
    context: tuple[Turn, ...] = ()
    memories: tuple[MemoryRecord, ...] = ()
    retry: bool = False

    @property
    def chars(self) -> int:
        """The number of characters in all turns."""
        return sum(len(turn.content) for turn in (*self.turns, *self.context))

    def shortened(self) -> Batch:
        """Return the batch with only the beginning and the end of long turns, which is what extraction reads."""
        turns, context = (
            tuple(replace(turn, content=head_and_tail(turn.content, MAX_TURN_CHARS)) for turn in each)
            for each in (self.turns, self.context)
        )
        return replace(self, turns=turns, context=context)

    def shared_metadata(self, turn_ids: Collection[str]) -> Mapping[str, Any]:
        """Return what the metadata of these turns have in common."""
        first, *others = [turn.metadata for turn in self.turns if turn.id in turn_ids] or [{}]
        return {name: value for name, value in first.items() if all(each.get(name) == value for each in others)}

    def author(self, who: str) -> Author:
        """Return the author of the changes; its batch id contains the range of turns, which undo reads."""
        if not self.turns:
            return Author(who)
        first, last = self.turns[0].position, self.turns[-1].position
        return Author(who, f"turns {first} to {last}", batch=f"{new_id()}-turns-{first}-{last}")


def learned_turns(entry: HistoryEntry) -> range | None:
    """Return the positions of the turns that a history entry was extracted from; None if unknown."""
    match = _BATCH_RANGE.search(entry.batch) or _REASON_RANGE.search(entry.by.why)
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
