"""Turns, and the conversations they form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.memory import Category, MemoryRecord, MemoryType, Trust
from recollect.model.plain import plain_fields
from recollect.model.scope import Scope


class Role(StrEnum):
    """The speaker of a turn."""

    USER = "user"
    ASSISTANT = "assistant"


@frozen_dataclass(kw_only=True)
class Turn:
    """One message of a session; the ledger assigns `position`, which counts from 1."""

    id: str
    scope: Scope
    role: Role
    content: str
    said_at: datetime
    name: str | None = None
    position: int = 0
    # For filters, such as the branch of a repository; facts learned from the turn inherit it.
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    # By default high for the user and low for the assistant.
    trust: Trust | None = None
    # The memory of an imported turn, with its status.
    exported_record: MemoryRecord | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        plain = plain_fields(self, omit=("scope", "trust", "exported_record"))
        return {"session_id": self.scope.session or None, **plain}

    def as_memory(self) -> MemoryRecord:
        """Return the turn as a memory, so that it is searched like other memories.

        Its level is that of facts learned from the session.
        """
        if self.exported_record is not None:
            return replace(self.exported_record, detail={**self.exported_record.detail, "position": self.position})
        detail: dict[str, Any] = {"role": str(self.role), "position": self.position}
        if self.name:
            detail["name"] = self.name
        return MemoryRecord(
            id=self.id,
            scope=self.scope,
            level=self.scope.default_level,
            type=MemoryType.EPISODIC,
            category=Category.TURN,
            content=self.content,
            created_at=self.said_at,
            updated_at=self.said_at,
            occurred_at=self.said_at,
            importance=0.3,
            source="conversation",
            trust=self.trust or (Trust.HIGH if self.role is Role.USER else Trust.LOW),
            detail=detail,
            metadata=self.metadata,
        )


@frozen_dataclass(kw_only=True)
class Conversation:
    """The state of one session.

    Facts were extracted from the turns up to the position `learned_to`. A new turn reopens a closed session.
    """

    scope: Scope
    turn_count: int = 0
    started_at: datetime | None = None
    last_turn_at: datetime | None = None
    summary: str = ""
    invocations: tuple[Mapping[str, Any], ...] = ()
    learned_to: int = 0
    closed_at: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    version: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return plain_fields(self, omit=("version",))
