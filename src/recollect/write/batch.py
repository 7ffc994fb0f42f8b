"""A batch of turns to learn from."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recollect.model.memory import MemoryRecord
from recollect.model.turn import Turn

_RANGE = re.compile(r"turns (\d+) to (\d+)")


@dataclass(frozen=True, slots=True)
class Batch:
    """Turns to learn from, the turns before them for context, and the stored memories related to them.

    `retry` says that the turns were skipped once, because the LLM gave no usable answer.
    """

    turns: tuple[Turn, ...]
    context: tuple[Turn, ...] = ()
    memories: tuple[MemoryRecord, ...] = ()
    retry: bool = False

    @property
    def turn_range_text(self) -> str:
        """Return the range of turns, as history shows it."""
        return f"turns {self.turns[0].position} to {self.turns[-1].position}" if self.turns else ""


def parse_turn_range(text: str) -> range | None:
    """Return the positions of the turns that `Batch.described` names."""
    match = _RANGE.fullmatch(text)
    return range(int(match[1]), int(match[2]) + 1) if match else None
