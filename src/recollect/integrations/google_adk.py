"""Memory for Google's Agent Development Kit: a memory service on the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from recollect.errors import MissingExtra
from recollect.integrations.common import AnyMemory, RunMemory
from recollect.model.result import Hit
from recollect.service.tool_memory import ToolMemory, quoted_line

try:
    from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.genai.types import Content, Part
except ImportError as error:
    raise MissingExtra("memory for the Agent Development Kit", "google-adk") from error

if TYPE_CHECKING:
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.events.event import Event
    from google.adk.sessions.session import Session

BY = "google-adk"


class RecollectMemoryService(BaseMemoryService):
    """The memories of an application's users, for a `Runner`.

    An application is a project, unless `project_id` names one for all of them; with "" memories belong to the user
    alone. If memory fails, a search finds nothing and the log reports it.
    """

    def __init__(self, memory: AnyMemory, *, project_id: str | None = None) -> None:
        self._memory, self._project_id = memory, project_id

    async def add_session_to_memory(self, session: Session) -> None:
        """Remember a session; events that are stored already are skipped."""
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember the text of events; it is learned from in the background."""
        messages = [to_message(event, session_id) for event in events if content_text(event.content)]
        await self._run(app_name, user_id, session_id).remember(messages)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store statements as written; one that reads like an instruction waits for review."""

        async def store(tool: ToolMemory) -> None:
            for entry in memories:
                if text := content_text(entry.content):
                    await tool.store(text, {"metadata": {**entry.custom_metadata, **(custom_metadata or {})}})

        await self._run(app_name, user_id).run_tool(store)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Return the memories that help with the query."""
        # The query of a tool is a few words: only small talk is not searched.
        result = await self._run(app_name, user_id).recall(query, is_fact=False)
        return SearchMemoryResponse(memories=[to_entry(hit) for hit in result or ()])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Forget a memory; `undo` restores it."""
        if memory_id:
            await self._run(app_name, user_id).run_tool(lambda tool: tool.forget(memory_id))

    def _run(self, app_name: str, user_id: str, session_id: str | None = None) -> RunMemory:
        project = app_name if self._project_id is None else self._project_id
        return RunMemory.of(self._memory, by=BY, user_id=user_id, project_id=project, session_id=session_id)


async def remember_turn(callback_context: CallbackContext) -> None:
    """Remember the question and the answer of a run: the `after_agent_callback` of an agent."""
    run = callback_context.invocation_id
    events = [event for event in callback_context.session.events if event.invocation_id == run]
    await callback_context.add_events_to_memory(events=events)


def to_message(event: Event, session_id: str | None) -> dict[str, Any]:
    """Return an event as a chat message, with an id by which it is stored once."""
    role = "user" if event.author == "user" else "assistant"
    said_at = datetime.fromtimestamp(event.timestamp, UTC)
    turn_id = f"{session_id}-{event.id}"
    return {"role": role, "content": content_text(event.content), "turn_id": turn_id, "timestamp": said_at}


def content_text(content: Content | None) -> str:
    """Return the text of an event or an entry, without thoughts, tools and files."""
    parts: Sequence[Part] = (content.parts if content is not None else None) or ()
    return "\n".join(part.text for part in parts if part.text and not part.thought).strip()


def to_entry(hit: Hit) -> MemoryEntry:
    """Return a hit as an entry, sanitised for a prompt."""
    record = hit.record
    return MemoryEntry(
        id=record.id,
        content=Content(role="user", parts=[Part(text=quoted_line(record))]),
        timestamp=record.stated_at.isoformat(timespec="seconds"),
    )
