"""What a batch of changes brings about beside the memories it changes, in the same transaction: all of it or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import NoneType
from typing import Any, TypeAlias

from recollect.errors import InvalidInput
from recollect.model.job import NewJob, as_json
from recollect.model.scope import Scope

UPDATABLE_FIELDS: Mapping[str, tuple[type, ...]] = {
    "learned_to": (int,),
    "summary": (str,),
    "invocations": (list, tuple),
    "closed_at": (datetime, NoneType),
    "metadata": (Mapping,),
}


@dataclass(frozen=True, slots=True)
class FinishJob:
    """The job is done; a Conflict if it was cancelled, or if its lease went to someone else."""

    job_id: str
    lease: str
    result: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        as_json(self.result or {}, name="the result of a job")


@dataclass(frozen=True, slots=True)
class ConversationUpdate:
    """Give some fields of a conversation new values; a Conflict if it is not at the version that was expected.

    Whatever is said moves the version, too. Who need not have read the last turn, and holds the only job that may
    change these fields, expects none.
    """

    scope: Scope
    fields: Mapping[str, Any]
    expected_version: int | None = None

    def __post_init__(self) -> None:
        if wrong := set(self.fields) - set(UPDATABLE_FIELDS):
            raise InvalidInput(
                f"a conversation cannot be given {', '.join(sorted(wrong))}; it can: {', '.join(sorted(UPDATABLE_FIELDS))}"
            )
        for name, value in self.fields.items():
            if not isinstance(value, UPDATABLE_FIELDS[name]):
                raise InvalidInput(f"{name} of a conversation cannot be {value!r}")
        if not 0 <= self.fields.get("learned_to", 0) < 1 << 63:
            raise InvalidInput(f"learned_to is a position in a conversation, not {self.fields['learned_to']}")
        plain = {name: value for name, value in self.fields.items() if name != "closed_at"}
        as_json(plain, name="the state of a conversation")


@dataclass(frozen=True, slots=True)
class EnqueueJob:
    """Another job is to be done."""

    scope: Scope
    job: NewJob


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """What was asked of a model for a user: by which step of ours, how often, at how many tokens."""

    user: str
    step: str
    model: str
    calls: int = 1
    tokens_in: int = 0
    tokens_out: int = 0
    at: datetime


Effect: TypeAlias = FinishJob | ConversationUpdate | EnqueueJob | ModelUsage


def owner_of(effect: Effect) -> str | None:
    """The user whom an effect concerns; None if it does not say."""
    match effect:
        case ConversationUpdate(scope=scope) | EnqueueJob(scope=scope):
            return scope.user
        case ModelUsage(user=user):
            return user
    return None


def check_effects(scope: Scope, effects: Sequence[Effect]) -> None:
    """Raise an InvalidInput if an effect concerns another user than the one that is written for."""
    for effect in effects:
        if owner_of(effect) not in (None, scope.user):
            raise InvalidInput(f"{type(effect).__name__} concerns another user than the scope it is written in")
