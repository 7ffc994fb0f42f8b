"""What happened on the way: how long each step took, and what became of every candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from recollect.model.result import TracedCandidate
from recollect.read.candidate import SearchCandidate


@dataclass(slots=True)
class StepTimer:
    """How long each step took, in microseconds."""

    steps_us: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=perf_counter)

    def skip(self) -> None:
        """What passed since the last step was counted elsewhere."""
        self._last = perf_counter()

    def mark(self, step: str) -> None:
        """The step that began when the last one ended is done."""
        now = perf_counter()
        self.steps_us[step] = self.steps_us.get(step, 0.0) + (now - self._last) * 1e6
        self._last = now


def trace_candidates(
    candidates: Sequence[SearchCandidate], features: Mapping[int, Mapping[str, float]]
) -> tuple[TracedCandidate, ...]:
    """Every candidate, best first, with all its scores and what it fell to."""
    return tuple(
        TracedCandidate(
            id=each.record.id,
            memory=each.record.content,
            score=each.score,
            relevance=each.relevance,
            fate=each.decision or "kept",
            scores=each.parts,
            signals=features.get(each.pool_index, {}),
        )
        for each in candidates
    )
