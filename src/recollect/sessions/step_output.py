"""The output of a session step, how far each step has come, and the turns that no step has compressed yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Literal, TypeAlias
from uuid import UUID

from recollect.errors import Conflict
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.ledger import Ledger
from recollect.model.change import Change
from recollect.model.messages import message_role
from recollect.model.scope import Scope
from recollect.model.times import to_micros
from recollect.model.turn import Conversation, Turn
from recollect.write.ask_llm import NO_COST, LlmCost

SessionStep: TypeAlias = Literal["compress", "summary", "close", "told"]

# The metadata field in which a conversation records how far each step has come.
MARKS = "written_to"
# The metadata field that counts how often turns were retracted, so that a step that has read them is refused.
RETRACTIONS = "retractions"
# The maximum that an import accepts; the range of turns covers the rest.
MAX_EVIDENCE = 256
# The maximum of stored invocations per conversation; older ones are in its episodes.
MAX_INVOCATIONS = 200
# The time of ids that must not depend on when something is reported.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_JOINT = "\x1f"


@frozen_dataclass(kw_only=True)
class StepOutput:
    """Changes without vectors, and updates of the conversation.

    `fields` are new field values, `invocations` are appended, and `marks` say how far a step has come. `left` counts
    due work that was not done. `reasons` explain what was skipped or is not as good as it could be.
    """

    changes: tuple[Change, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    invocations: tuple[Mapping[str, Any], ...] = ()
    marks: Mapping[SessionStep, int] = field(default_factory=dict)
    cost: LlmCost = NO_COST
    left: int = 0
    reasons: tuple[str, ...] = ()


def step_position(conversation: Conversation, step: SessionStep) -> int:
    """Return the position up to which a step is done; 0 if it has not begun, or if its work was removed."""
    if step == "summary" and not conversation.summary:
        return 0
    marks = conversation.metadata.get(MARKS)
    mark = marks.get(step) if isinstance(marks, Mapping) else None
    return mark if isinstance(mark, int) and not isinstance(mark, bool) and mark > 0 else 0


def merge_fields(conversation: Conversation, outputs: Sequence[StepOutput]) -> dict[str, Any]:
    """Return the conversation fields after several steps; a later step overrides an earlier one."""
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
        fields["metadata"] = {
            **conversation.metadata,
            **fields.get("metadata", {}),
            **merge_marks(conversation, marks),
        }
    return fields


def merge_marks(conversation: Conversation, marks: Mapping[SessionStep, int]) -> dict[str, Any]:
    """Return the metadata field of the positions with some of them changed."""
    stored = conversation.metadata.get(MARKS)
    return {MARKS: {**(stored if isinstance(stored, Mapping) else {}), **marks}}


def retraction_count(conversation: Conversation) -> int:
    """Return how often turns of the conversation were retracted."""
    count = conversation.metadata.get(RETRACTIONS)
    return count if isinstance(count, int) else 0


def _dedupe_invocations(invocations: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Drop invocations built from turns that a run's own invocation covers, whichever came first."""
    ends = {each["turn_end"] for each in invocations if "run_id" in each and "turn_end" in each}
    return [each for each in invocations if "run_id" in each or each.get("turn_end") not in ends]


def drop_recorded_runs(conversation: Conversation, outputs: Sequence[StepOutput]) -> list[StepOutput]:
    """Return the outputs without those of runs that the conversation has recorded."""
    recorded = run_ids(conversation.invocations)
    return [each for each in outputs if not recorded & run_ids(each.invocations)]


def run_ids(invocations: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the ids of the runs that the invocations belong to."""
    return {each["run_id"] for each in invocations if isinstance(each.get("run_id"), str)}


def ensure_unchanged(before: Conversation, current: Conversation, outputs: Sequence[StepOutput]) -> None:
    """Raise a Conflict if another process updated the same fields; additional turns are no conflict."""
    steps = {step for each in outputs for step in each.marks}
    moved = any(step_position(before, step) != step_position(current, step) for step in steps)
    derives = any(each.changes or each.marks for each in outputs)
    if derives and retraction_count(before) != retraction_count(current):
        raise Conflict("turns of the conversation were forgotten in the meantime: read it again and retry")
    if moved or (before.summary != current.summary and any("summary" in each.fields for each in outputs)):
        raise Conflict("the conversation was summarised by another process in the meantime: read it again and retry")


def stable_id(scope: Scope, kind: str, *, at: datetime, source_ids: Sequence[str]) -> str:
    """Return an id that depends only on the sources, so that repeating a step adds nothing.

    Ids sort by `at`. With fewer sources, after some were erased, the id is another.
    """
    seed = _JOINT.join([scope.user, scope.project, scope.session, kind, *source_ids])
    number = int.from_bytes(blake2b(seed.encode(), digest_size=16).digest(), "big")
    millis = to_micros(at) // 1000 & (1 << 48) - 1
    tail = number & (1 << 62) - 1
    return str(UUID(int=millis << 80 | 0x8 << 76 | (number >> 64 & 0xFFF) << 64 | 0b10 << 62 | tail))


def turn_range(turns: Sequence[Turn]) -> dict[str, int]:
    """Return the first and last position, as the detail of a memory has them."""
    positions = [turn.position for turn in turns]
    return {"turn_start": min(positions), "turn_end": max(positions)}


def evidence_ids(turns: Sequence[Turn]) -> tuple[str, ...]:
    """Return the ids of the turns; only the latest if there are too many."""
    return tuple(turn.id for turn in turns[-MAX_EVIDENCE:])


# The session of requests that name none and have no history: each user (and project) has one.
DEFAULT_SESSION = "conversation"
_WITHOUT_HISTORY = frozenset({"system", "developer"})


def has_history(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the client sends earlier messages with the question."""
    return sum(message_role(each) not in _WITHOUT_HISTORY for each in messages) > 1


async def recent_turns(scope: Scope, *, ledger: Ledger, limit: int) -> list[Turn]:
    """Return the last turns of the session, in order; those before the last compression are in its episodes."""
    conversation = await ledger.conversation(scope)
    after = max(step_position(conversation, "compress"), conversation.turn_count - limit)
    return await ledger.turns(scope, after=after, limit=limit) if after < conversation.turn_count else []
