"""What the steps of a conversation hand back: changes and notes for one transaction, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Literal, TypeAlias
from uuid import UUID

from recollect.errors import Conflict
from recollect.model.change import Change
from recollect.model.scope import Scope
from recollect.model.times import to_micros
from recollect.model.turn import Conversation, Turn

SessionStep: TypeAlias = Literal["compress", "summary", "close", "told"]

# Where in its metadata a conversation says how far each step has come.
MARKS = "written_to"
# More than this no store takes back in an import; the range of turns stands for the rest.
MAX_EVIDENCE = 256
# Invocations of one conversation that are kept; older ones are in its episodes.
MAX_INVOCATIONS = 200
# For the ids of what is one and the same whenever it is told.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_JOINT = "\x1f"


@dataclass(frozen=True, slots=True)
class Cost:
    """What was asked of a model."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    model: str = ""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.calls + other.calls,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.model or other.model,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutput:
    """What a step wants written; the changes come without vectors.

    `fields` are new values of the conversation's, `invocations` more of those it has, `marks` how far the step has
    come in it. `left` counts what was due and was not done. `reasons` say why something is not as good as it could
    be, or stayed as it was.
    """

    changes: tuple[Change, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    invocations: tuple[Mapping[str, Any], ...] = ()
    marks: Mapping[SessionStep, int] = field(default_factory=dict)
    cost: Cost = Cost()
    left: int = 0
    reasons: tuple[str, ...] = ()


def step_position(conversation: Conversation, step: SessionStep) -> int:
    """The position up to which a step has done its work; 0 if it has not begun, or if its work was taken away."""
    if step == "summary" and not conversation.summary:
        return 0
    marks = conversation.metadata.get(MARKS)
    mark = marks.get(step) if isinstance(marks, Mapping) else None
    return mark if isinstance(mark, int) and not isinstance(mark, bool) and mark > 0 else 0


def merge_fields(conversation: Conversation, outputs: Sequence[StepOutput]) -> dict[str, Any]:
    """The fields of the conversation as several steps together leave them; those of a later step count."""
    fields: dict[str, Any] = {}
    marks: dict[SessionStep, int] = {}
    new: list[Mapping[str, Any]] = []
    for each in outputs:
        fields |= each.fields
        marks |= each.marks
        new += each.invocations
    if new:
        fields["invocations"] = _dedupe_invocations([*conversation.invocations, *new])[-MAX_INVOCATIONS:]
    if marks:
        stored = conversation.metadata.get(MARKS)
        before = dict(stored) if isinstance(stored, Mapping) else {}
        fields["metadata"] = {**conversation.metadata, **fields.get("metadata", {}), MARKS: {**before, **marks}}
    return fields


def _dedupe_invocations(invocations: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The invocations but for those made of the turns of a run that tells of itself, whichever came first."""
    ends = {each["turn_end"] for each in invocations if "run_id" in each and "turn_end" in each}
    return [each for each in invocations if "run_id" in each or each.get("turn_end") not in ends]


def drop_recorded_runs(conversation: Conversation, outputs: Sequence[StepOutput]) -> list[StepOutput]:
    """Those of the steps that tell of no run which the conversation tells of already."""
    recorded = run_ids(conversation.invocations)
    return [each for each in outputs if not recorded & run_ids(each.invocations)]


def run_ids(invocations: Sequence[Mapping[str, Any]]) -> set[str]:
    """The runs that invocations are of."""
    return {each["run_id"] for each in invocations if isinstance(each.get("run_id"), str)}


def ensure_unchanged(before: Conversation, current: Conversation, outputs: Sequence[StepOutput]) -> None:
    """Raise a Conflict if another has changed what these steps worked out anew; more turns are no change."""
    steps = {step for each in outputs for step in each.marks}
    moved = any(step_position(before, step) != step_position(current, step) for step in steps)
    if moved or (before.summary != current.summary and any("summary" in each.fields for each in outputs)):
        raise Conflict("the conversation was summed up by another meanwhile: read it again and retry")


def stable_id(scope: Scope, kind: str, *, at: datetime, source_ids: Sequence[str]) -> str:
    """The same id whenever the same thing is made of the same sources, so that doing it again adds nothing.

    It sorts by the time of what it is about. Made of fewer sources, after some were erased, it is another.
    """
    seed = _JOINT.join([scope.user, scope.project, scope.session, kind, *source_ids])
    number = int.from_bytes(blake2b(seed.encode(), digest_size=16).digest(), "big")
    millis = to_micros(at) // 1000 & (1 << 48) - 1
    tail = number & (1 << 62) - 1
    return str(UUID(int=millis << 80 | 0x8 << 76 | (number >> 64 & 0xFFF) << 64 | 0b10 << 62 | tail))


def turn_range(turns: Sequence[Turn]) -> dict[str, int]:
    """From which turn to which, as the detail of a memory says it."""
    positions = [turn.position for turn in turns]
    return {"turn_start": min(positions), "turn_end": max(positions)}


def evidence_ids(turns: Sequence[Turn]) -> tuple[str, ...]:
    """The ids of the turns, of the latest if they are too many."""
    return tuple(turn.id for turn in turns[-MAX_EVIDENCE:])
