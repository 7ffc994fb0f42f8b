"""Anthropic's memory tool on the ledger: files under /memories are memories of the user."""

from __future__ import annotations

from typing import Any, Generic, NotRequired, TypedDict, TypeVar, Unpack, overload

from recollect.client import AsyncMemory
from recollect.errors import MissingExtra, RecollectError
from recollect.integrations.common import AnyMemory, call_memory, call_memory_blocking
from recollect.model.scope import Scope
from recollect.sync import Memory

try:
    from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
    from anthropic.types.beta import BetaCacheControlEphemeralParam
except ImportError as error:
    raise MissingExtra("Anthropic's memory tool", "anthropic") from error

BY = "anthropic"
_M = TypeVar("_M", bound=AnyMemory)


class ToolOptions(TypedDict):
    """The options of a memory tool."""

    user_id: str
    project_id: NotRequired[str | None]
    cache_control: NotRequired[BetaCacheControlEphemeralParam | None]


class _UserScoped(Generic[_M]):
    """The memory and the scope of a tool; a base class before the SDK's."""

    def __init__(self, memory: _M, **options: Unpack[ToolOptions]) -> None:
        super().__init__(cache_control=options.get("cache_control"))  # type: ignore[call-arg]
        scope = Scope(options["user_id"], options.get("project_id") or "")
        self._memory = memory
        self._scope: Any = {"user_id": scope.user, "project_id": scope.project}


class MemoryTool(_UserScoped[Memory], BetaAbstractMemoryTool):
    """The memory tool of one user, for `Anthropic().beta.messages.tool_runner`.

    Files belong to the user or to one of their projects. Each is a memory: in history, undone by `undo`, found by
    recall, and without secrets. The replies are those of the SDK's tool for files on disk.
    """

    def _do(self, command: Any) -> str:
        try:
            return call_memory_blocking(
                self._memory, lambda memory: memory.acting_as(BY).files.run(dict(command), **self._scope)
            )
        except RecollectError as error:
            raise ToolError(str(error)) from error

    view = create = str_replace = insert = delete = rename = _do

    def clear_all_memory(self) -> str:
        """Forget all files; `undo` restores them."""
        return call_memory_blocking(self._memory, lambda memory: memory.acting_as(BY).files.clear(**self._scope))


class AsyncMemoryTool(_UserScoped[AnyMemory], BetaAsyncAbstractMemoryTool):
    """The memory tool for `AsyncAnthropic().beta.messages.tool_runner`."""

    async def _do(self, command: Any) -> str:
        try:
            return await call_memory(
                self._memory, lambda memory: memory.acting_as(BY).files.run(dict(command), **self._scope)
            )
        except RecollectError as error:
            raise ToolError(str(error)) from error

    view = create = str_replace = insert = delete = rename = _do

    async def clear_all_memory(self) -> str:
        """Forget all files; `undo` restores them."""
        return await call_memory(self._memory, lambda memory: memory.acting_as(BY).files.clear(**self._scope))


@overload
def memory_tool(memory: Memory, **options: Unpack[ToolOptions]) -> MemoryTool: ...


@overload
def memory_tool(memory: AsyncMemory, **options: Unpack[ToolOptions]) -> AsyncMemoryTool: ...


def memory_tool(memory: AnyMemory, **options: Unpack[ToolOptions]) -> MemoryTool | AsyncMemoryTool:
    """Return the blocking or the async tool of a user, as the memory is."""
    return AsyncMemoryTool(memory, **options) if isinstance(memory, AsyncMemory) else MemoryTool(memory, **options)
