"""Conversations for tests of sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from recollect.ledger.ledger import Ledger
from recollect.ledger.sqlite import open_in_memory
from recollect.model.change import Author, ConversationUpdate
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Role, Turn
from recollect.models.embedding import EmbeddingModel
from recollect.sessions.step_output import StepOutput, merge_fields

ANN = Scope("ann", session="monday")
NOW = datetime(2025, 1, 2, 9, tzinfo=UTC)
DAY = datetime(2024, 12, 29, 10, tzinfo=UTC)
BY = Author("test")

HAWAII = (
    "I want to plan a vacation in Hawaii with my sister Maria.",
    "Lovely! When would you like to travel?",
    "We fly on May 3 and my budget for the trip is $10,000.",
    "Noted. Shall I look for hotels in Honolulu?",
    "Yes, but no more than 200 dollars a night.",
    "The Palm Inn has rooms for 180 dollars.",
)


def talk(*texts: str, scope: Scope = ANN, first: int = 1, day: datetime = DAY) -> list[Turn]:
    """Return turns of user and assistant, a minute apart."""
    return [
        Turn(
            id=f"turn-{at}",
            scope=scope,
            role=Role.USER if at % 2 else Role.ASSISTANT,
            content=text,
            said_at=day + timedelta(minutes=at),
            position=at,
        )
        for at, text in enumerate(texts, first)
    ]


def long_talk(turns: int, *, scope: Scope = ANN) -> list[Turn]:
    """Return turns with different contents."""
    return talk(
        *(f"In step number {at} I moved the box to shelf {at * 100}." for at in range(1, turns + 1)), scope=scope
    )


def state(turns: Sequence[Turn] = (), **fields: Any) -> Conversation:
    """Return the state of a conversation after these turns."""
    count = max((turn.position for turn in turns), default=0)
    return Conversation(scope=fields.pop("scope", ANN), turn_count=count, **fields)


def after(conversation: Conversation, *output: StepOutput) -> Conversation:
    """Return the conversation after the outputs were applied."""
    fields = merge_fields(conversation, output)
    if "invocations" in fields:
        fields["invocations"] = tuple(fields["invocations"])
    return replace(conversation, **fields)


async def a_ledger(turns: Sequence[Turn] = ()) -> Ledger:
    ledger = await open_in_memory(EmbeddingModel("test", 4))
    if turns:
        await ledger.append(turns[0].scope, turns, vectors=[None] * len(turns), by=BY)
    return ledger


async def apply(ledger: Ledger, conversation: Conversation, *output: StepOutput) -> Conversation:
    """Apply outputs in one transaction, and return the conversation."""
    changes = [change for each in output for change in each.changes]
    note = ConversationUpdate(conversation.scope, merge_fields(conversation, output))
    await ledger.apply(conversation.scope, changes, by=BY, effects=[note])
    return await ledger.conversation(conversation.scope)


async def stored_memories(ledger: Ledger, scope: Scope = ANN, *categories: Category) -> list[MemoryRecord]:
    """Return the user's memories of any status, without turns, or of the categories only."""
    results = await ledger.find(scope, Listing(statuses=tuple(Status), limit=10_000, order="oldest"))
    expected = set(categories) or set(Category) - {Category.TURN}
    return [record for record in results if record.category in expected]
