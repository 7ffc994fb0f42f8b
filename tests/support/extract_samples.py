"""Messages and helpers for tests of extraction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope
from recollect.model.turn import Role, Turn
from recollect.models.openai_chat import OpenAIChat
from recollect.testing.scripted_llm import ScriptedLLM
from recollect.write.batch import Batch
from recollect.write.extract import Extraction, ExtractionLimits, extract

TUESDAY = datetime(2026, 3, 10, 12, tzinfo=UTC)
HAWAII = "I'm planning a trip to Hawaii. My budget is $10,000."
BUDGET = "The budget for the Hawaii trip is $10,000"


def turn(text: str, *, id: str = "t1", role: Role = Role.USER, at: datetime = TUESDAY, **fields: Any) -> Turn:
    return Turn(id=id, scope=Scope("anna"), role=role, content=text, said_at=at, **fields)


def assistant(text: str, *, id: str = "a1") -> Turn:
    return turn(text, id=id, role=Role.ASSISTANT)


def claim(content: str, **fields: Any) -> dict[str, Any]:
    whole = {
        "op": "add", "memory": None, "lines": [1], "content": content, "type": "semantic", "category": "fact",
        "key": None, "value": None, "importance": 0.8, "confidence": 0.9, "when": None,
    }  # fmt: skip
    return {**whole, **fields}


async def run(
    chat: OpenAIChat,
    *turns: Turn,
    context: Sequence[Turn] = (),
    memories: Sequence[MemoryRecord] = (),
    mode: str = "chat",
    **limits: Any,
) -> Extraction:
    batch = Batch(turns, tuple(context), tuple(memories))
    return await extract(batch, chat=chat, mode=mode, now=TUESDAY, limits=ExtractionLimits(**limits))


def prompt_text(llm: ScriptedLLM) -> str:
    return str(llm.calls("chat")[0].json["messages"][0]["content"])
