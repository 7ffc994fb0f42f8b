"""What came of telling something to memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from recollect.model.job import Job
from recollect.model.turn import Turn


@dataclass(frozen=True, slots=True)
class RememberResult:
    """The turns that were kept, and the job that learns from them, as it stood when this was made.

    `redacted` names the kinds of secrets that were kept out of the turns.
    """

    turns: tuple[Turn, ...] = ()
    job: Job | None = None
    redacted: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Turn]:
        return iter(self.turns)

    def __len__(self) -> int:
        return len(self.turns)

    def __getitem__(self, at: int) -> Turn:
        return self.turns[at]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "turns": [turn.to_dict() for turn in self.turns],
            "job": None if self.job is None else self.job.to_dict(),
            "redacted": list(self.redacted),
        }
