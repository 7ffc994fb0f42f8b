"""The Python client of the Markdown memory proxy: `chat`, `search` and `add`, under its names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, Self, TypedDict, Unpack

import httpx

from recollect.client import AsyncMemory
from recollect.config.name_mapping import translate
from recollect.config.settings import load
from recollect.errors import InvalidSettings, ModelUnavailable, StoreBusy
from recollect.model.messages import message_text
from recollect.model.result import Hit

_PRESET = "markdown-proxy"
_GLOBAL = "global"


class ClientOptions(TypedDict, total=False):
    """The options of a client; see `recollect serve --help` for those of the server."""

    openai_api_key: str
    embedding_base_url: str
    embedding_model: str
    chroma: str
    default_top_k: int
    max_entries: int
    mmr_lambda: float
    recency_weight: float
    score_threshold: float
    enable_summarization: bool
    enable_git_versioning: bool


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """A memory or a turn that was found."""

    role: str
    content: str
    created_at: str
    score: float


@dataclass(frozen=True, slots=True)
class MemoryRetrieval:
    """The result of a search, best first."""

    entries: tuple[MemoryEntry, ...]


class MemoryClient:
    """Memory in a folder of Markdown files, for one user; use it in `async with`.

    `model`, at `openai_base_url`, answers chats and extracts facts. Without them facts are extracted by the built-in
    selector, and there is no chat.
    """

    def __init__(
        self,
        memory_path: str | PathLike[str],
        openai_base_url: str = "",
        model: str = "",
        **options: Unpack[ClientOptions],
    ) -> None:
        named = {**options, "openai_base_url": openai_base_url or None}
        own, translated = translate(named, _PRESET, "arguments")
        for values in translated.values():
            own |= values
        # The summary is updated after every call, whether it has one turn or two.
        own = {"preset": _PRESET, "home": memory_path, "llm": model, "summary_every": 1, **own}
        self._settings = load(own).settings
        self.memory = AsyncMemory(settings=self._settings)

    async def __aenter__(self) -> Self:
        service = await (await self.memory.open()).service()
        if service.mirror is not None:
            try:
                # Files that changed meanwhile are read before the first search, unless another process mirrors them.
                with suppress(StoreBusy):
                    await service.mirror.sync()
            except BaseException:
                await self.memory.close()
                raise
            service.mirror.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.memory.close()

    async def add(self, text: str, conversation_id: str = "default") -> None:
        """Extract facts from a text as from a message of the user, reconcile them, and update the summary."""
        await self.memory.remember(text, **self._scope(conversation_id), wait=True)
        await self.memory.jobs.run_pending()

    async def search(self, query: str, conversation_id: str = "default", top_k: int | None = None) -> MemoryRetrieval:
        """Return the memories that a chat with this message would be given."""
        recalled = await self.memory.recall(query, **self._scope(conversation_id), limit=top_k)
        return MemoryRetrieval(tuple(map(_entry, recalled.hits)))

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], conversation_id: str = "default", top_k: int | None = None
    ) -> dict[str, Any]:
        """Answer a chat with memories, store both turns, and return the completion with `memory_hits`."""
        if not self._settings.upstream_url or not self._settings.llm:
            raise InvalidSettings("`chat` needs `openai_base_url` and `model`")
        scope = self._scope(conversation_id)
        recalled = await self.memory.recall(messages, **scope, limit=top_k)
        answer = await self._complete(recalled.messages)
        reply = {"role": "assistant", "content": message_text(answer["choices"][0]["message"].get("content"))}
        await self.memory.remember([messages[-1], reply], **scope)
        return {**answer, "memory_hits": [asdict(_entry(hit)) for hit in recalled.hits]}

    async def _complete(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        settings = self._settings
        key = settings.upstream_api_key.get_secret_value()
        try:
            async with httpx.AsyncClient(timeout=settings.upstream_timeout_s) as client:
                answer = await client.post(
                    f"{settings.upstream_url.rstrip('/')}/chat/completions",
                    json={"model": settings.llm, "messages": [dict(message) for message in messages]},
                    headers={"authorization": f"Bearer {key}"} if key else {},
                )
            answer.raise_for_status()
        except httpx.HTTPError as error:
            raise ModelUnavailable(f"{settings.upstream_url} did not answer the chat: {error}") from error
        result: dict[str, Any] = answer.json()
        return result

    def _scope(self, conversation_id: str) -> Any:
        return {
            "user_id": self._settings.chat_user,
            # What every conversation sees has no project.
            "project_id": None if conversation_id == _GLOBAL else conversation_id,
            "session_id": conversation_id,
        }


def _entry(hit: Hit) -> MemoryEntry:
    record = hit.record
    role = str(record.detail.get("role") or "memory")
    return MemoryEntry(role, record.content, record.created_at.isoformat(), hit.score)
