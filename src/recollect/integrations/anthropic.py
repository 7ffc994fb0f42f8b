"""Anthropic's memory tool on the ledger: files under /memories are memories of the user."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

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


class _UserScoped(Generic[_M]):
    """The memory and the scope of a tool; a base class before the SDK's."""

    def __init__(
        self,
        memory: _M,
        *,
        user_id: str,
        project_id: str | None = None,
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)  # type: ignore[call-arg]
        self._memory, self._scope = memory, Scope(user_id, project_id or "")


class MemoryTool(_UserScoped[Memory], BetaAbstractMemoryTool):
    """The memory tool of one user, for `Anthropic().beta.messages.tool_runner`.

    Files belong to the user or to one of their projects. Each is a memory: in history, undone by `undo`, found by
    recall, and without secrets. The replies are those of the SDK's tool for files on disk.
    """

    def _do(self, command: Any) -> str:
        try:
            return call_memory_blocking(self._memory, lambda memory: _run_command(memory, self._scope, dict(command)))
        except RecollectError as error:
            raise ToolError(str(error)) from error

    view = create = str_replace = insert = delete = rename = _do

    def clear_all_memory(self) -> str:
        """Forget all files; `undo` restores them."""
        return call_memory_blocking(self._memory, lambda memory: _clear_files(memory, self._scope))


class AsyncMemoryTool(_UserScoped[AnyMemory], BetaAsyncAbstractMemoryTool):
    """The memory tool for `AsyncAnthropic().beta.messages.tool_runner`."""

    async def _do(self, command: Any) -> str:
        try:
            return await call_memory(self._memory, lambda memory: _run_command(memory, self._scope, dict(command)))
        except RecollectError as error:
            raise ToolError(str(error)) from error

    view = create = str_replace = insert = delete = rename = _do

    async def clear_all_memory(self) -> str:
        """Forget all files; `undo` restores them."""
        return await call_memory(self._memory, lambda memory: _clear_files(memory, self._scope))


@overload
def memory_tool(
    memory: Memory,
    *,
    user_id: str,
    project_id: str | None = None,
    cache_control: BetaCacheControlEphemeralParam | None = None,
) -> MemoryTool: ...


@overload
def memory_tool(
    memory: AsyncMemory,
    *,
    user_id: str,
    project_id: str | None = None,
    cache_control: BetaCacheControlEphemeralParam | None = None,
) -> AsyncMemoryTool: ...


def memory_tool(
    memory: AnyMemory,
    *,
    user_id: str,
    project_id: str | None = None,
    cache_control: BetaCacheControlEphemeralParam | None = None,
) -> MemoryTool | AsyncMemoryTool:
    """Return the blocking or the async tool of a user, as the memory is."""
    if isinstance(memory, AsyncMemory):
        return AsyncMemoryTool(memory, user_id=user_id, project_id=project_id, cache_control=cache_control)
    return MemoryTool(memory, user_id=user_id, project_id=project_id, cache_control=cache_control)


async def _run_command(memory: AsyncMemory, scope: Scope, command: dict[str, Any]) -> str:
    files = memory.acting_as(BY).files
    return await files.run(command, user_id=scope.user, project_id=scope.project)


async def _clear_files(memory: AsyncMemory, scope: Scope) -> str:
    return await memory.acting_as(BY).files.clear(user_id=scope.user, project_id=scope.project)
