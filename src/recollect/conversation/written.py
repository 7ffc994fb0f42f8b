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

Step: TypeAlias = Literal["compress", "summary", "close", "told"]

# Where in its metadata a conversation says how far each step has come.
MARKS = "written_to"
# More than this no store takes back in an import; the range of turns stands for the rest.
MAX_EVIDENCE = 256
# Invocations of one conversation that are kept; older ones are in its episodes.
MAX_INVOCATIONS = 200
# For the ids of what is one and the same whenever it is told.
NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
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
class Written:
    """What a step wants written; the changes come without vectors.

    `fields` are new values of the conversation's, `invocations` more of those it has, `marks` how far the step has
    come in it. `left` counts what was due and was not done. `reasons` say why something is not as good as it could
    be, or stayed as it was.
    """

    changes: tuple[Change, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    invocations: tuple[Mapping[str, Any], ...] = ()
    marks: Mapping[Step, int] = field(default_factory=dict)
    cost: Cost = Cost()
    left: int = 0
    reasons: tuple[str, ...] = ()


def mark_of(conversation: Conversation, step: Step) -> int:
    """The position up to which a step has done its work; 0 if it has not begun, or if its work was taken away."""
    if step == "summary" and not conversation.summary:
        return 0
    marks = conversation.metadata.get(MARKS)
    mark = marks.get(step) if isinstance(marks, Mapping) else None
    return mark if isinstance(mark, int) and not isinstance(mark, bool) and mark > 0 else 0


def noted(conversation: Conversation, written: Sequence[Written]) -> dict[str, Any]:
    """The fields of the conversation as several steps together leave them; those of a later step count."""
    fields: dict[str, Any] = {}
    marks: dict[Step, int] = {}
    new: list[Mapping[str, Any]] = []
    for each in written:
        fields |= each.fields
        marks |= each.marks
        new += each.invocations
    if new:
        fields["invocations"] = _told_once([*conversation.invocations, *new])[-MAX_INVOCATIONS:]
    if marks:
        held = conversation.metadata.get(MARKS)
        before = dict(held) if isinstance(held, Mapping) else {}
        fields["metadata"] = {**conversation.metadata, **fields.get("metadata", {}), MARKS: {**before, **marks}}
    return fields


def _told_once(invocations: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The invocations but for those made of the turns of a run that tells of itself, whichever came first."""
    ends = {each["turn_end"] for each in invocations if "run_id" in each and "turn_end" in each}
    return [each for each in invocations if "run_id" in each or each.get("turn_end") not in ends]


def untold(conversation: Conversation, written: Sequence[Written]) -> list[Written]:
    """Those of the steps that tell of no run which the conversation tells of already."""
    told = runs_of(conversation.invocations)
    return [each for each in written if not told & runs_of(each.invocations)]


def runs_of(invocations: Sequence[Mapping[str, Any]]) -> set[str]:
    """The runs that invocations are of."""
    return {each["run_id"] for each in invocations if isinstance(each.get("run_id"), str)}


def check_unchanged(before: Conversation, held: Conversation, written: Sequence[Written]) -> None:
    """Raise a Conflict if another has changed what these steps worked out anew; more turns are no change."""
    steps = {step for each in written for step in each.marks}
    moved = any(mark_of(before, step) != mark_of(held, step) for step in steps)
    if moved or (before.summary != held.summary and any("summary" in each.fields for each in written)):
        raise Conflict("the conversation was summed up by another meanwhile: read it again and retry")


def stable_id(scope: Scope, what: str, *, at: datetime, of: Sequence[str]) -> str:
    """The same id whenever the same thing is made of the same sources, so that doing it again adds nothing.

    It sorts by the time of what it is about. Made of fewer sources, after some were erased, it is another.
    """
    told = _JOINT.join([scope.user, scope.project, scope.session, what, *of])
    number = int.from_bytes(blake2b(told.encode(), digest_size=16).digest(), "big")
    millis = to_micros(at) // 1000 & (1 << 48) - 1
    tail = number & (1 << 62) - 1
    return str(UUID(int=millis << 80 | 0x8 << 76 | (number >> 64 & 0xFFF) << 64 | 0b10 << 62 | tail))


def range_of(turns: Sequence[Turn]) -> dict[str, int]:
    """From which turn to which, as the detail of a memory says it."""
    positions = [turn.position for turn in turns]
    return {"turn_start": min(positions), "turn_end": max(positions)}


def evidence_of(turns: Sequence[Turn]) -> tuple[str, ...]:
    """The ids of the turns, of the latest if they are too many."""
    return tuple(turn.id for turn in turns[-MAX_EVIDENCE:])
