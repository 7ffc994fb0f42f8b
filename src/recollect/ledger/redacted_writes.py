"""Redact all that is written to the ledger, whichever way it comes.

Flows redact text before they embed it, so that no vector and no provider sees a secret, and report the kinds. Here
nothing is reported: it is the one place that every write passes, so that a new way in cannot forget it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from recollect.model.change import (
    Add,
    Author,
    Change,
    ConversationUpdate,
    Effect,
    EnqueueJob,
    FinishJob,
    Supersede,
    Update,
    Vector,
)
from recollect.model.job import ExtractPayload, NewJob
from recollect.model.key import ApiKey
from recollect.model.memory import MemoryRecord
from recollect.model.response import StoredResponse, Thread, ThreadItems
from recollect.model.turn import Turn

T = TypeVar("T", Add, Supersede)


class WriteRedactor(Protocol):
    """Removes secrets; each method returns an equal value if there are none."""

    async def redact_record(self, record: MemoryRecord) -> tuple[MemoryRecord, tuple[str, ...]]: ...

    async def redact_fields(
        self, fields: Mapping[str, Any], *, key: str | None = None
    ) -> tuple[dict[str, Any], tuple[str, ...]]: ...

    async def redact_turn(self, turn: Turn) -> tuple[Turn, tuple[str, ...]]: ...

    def redact_author(self, by: Author) -> Author: ...

    async def redact_json(self, value: Any) -> Any: ...

    def redact_label(self, text: str) -> str: ...


class RedactedWrites:
    """The arguments of the ledger's writes without secrets; without a redactor as they are.

    A vector that was computed from a text with a secret is dropped; the text is embedded again in the background.
    """

    def __init__(self, redactor: WriteRedactor | None) -> None:
        self._redactor = redactor

    def author(self, by: Author) -> Author:
        return self._redactor.redact_author(by) if self._redactor else by

    async def changes(self, changes: Sequence[Change]) -> Sequence[Change]:
        return changes if self._redactor is None else [await self._change(each, self._redactor) for each in changes]

    async def effects(self, effects: Sequence[Effect]) -> Sequence[Effect]:
        return effects if self._redactor is None else [await self._effect(each, self._redactor) for each in effects]

    async def turns(
        self, turns: Sequence[Turn], vectors: Sequence[Vector | None]
    ) -> tuple[Sequence[Turn], Sequence[Vector | None]]:
        if self._redactor is None:
            return turns, vectors
        clean = [(await self._redactor.redact_turn(turn))[0] for turn in turns]
        kept = [
            vector if after.content == before.content else None
            for before, after, vector in zip(turns, clean, vectors, strict=True)
        ]
        return clean, kept

    async def response(self, response: StoredResponse) -> StoredResponse:
        items = await self.json(list(response.input_items))
        return replace(response, body=await self.json(response.body), input_items=items)

    async def thread(self, thread: Thread) -> Thread:
        return replace(thread, metadata=await self.json(thread.metadata))

    async def items(self, added: ThreadItems) -> ThreadItems:
        return replace(added, items=await self.json(list(added.items)))

    async def key(self, key: ApiKey) -> ApiKey:
        return replace(key, name=self._label(key.name))

    async def jobs(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        return jobs if self._redactor is None else [self._job(each) for each in jobs]

    async def json(self, value: Any) -> Any:
        """Redact plain JSON."""
        return await self._redactor.redact_json(value) if self._redactor else value

    async def label(self, text: str) -> str:
        """Redact a name or a message."""
        return self._label(text)

    def _label(self, text: str) -> str:
        return self._redactor.redact_label(text) if self._redactor and text else text

    async def _change(self, change: Change, redactor: WriteRedactor) -> Change:
        match change:
            case Add():
                return await _with_record(change, redactor)
            case Supersede():
                return await _with_record(change, redactor)
            case Update():
                fields, kinds = await redactor.redact_fields(change.fields)
                if not kinds:
                    return change
                is_same = fields.get("content") == change.fields.get("content")
                return replace(change, fields=fields, vector=change.vector if is_same else None)
        return change

    def _job(self, job: NewJob) -> NewJob:
        # The model's name is the client's.
        if not isinstance(job.payload, ExtractPayload) or not job.payload.model:
            return job
        return replace(job, payload=replace(job.payload, model=self._label(job.payload.model)))

    async def _effect(self, effect: Effect, redactor: WriteRedactor) -> Effect:
        match effect:
            case FinishJob() if effect.result:
                return replace(effect, result=await redactor.redact_json(effect.result))
            case ConversationUpdate():
                return replace(effect, fields=await redactor.redact_json(effect.fields))
            case EnqueueJob():
                return replace(effect, job=self._job(effect.job))
        return effect


async def _with_record(change: T, redactor: WriteRedactor) -> T:
    record, kinds = await redactor.redact_record(change.record)
    if not kinds:
        return change
    return replace(change, record=record, vector=change.vector if record.content == change.record.content else None)
