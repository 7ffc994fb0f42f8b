"""Ask a memory from whatever loop or thread a framework runs in, whether it is a `Memory` or an `AsyncMemory`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from recollect.api import AsyncMemory
from recollect.errors import InvalidInput
from recollect.sync import Memory

R = TypeVar("R")
AnyMemory: TypeAlias = Memory | AsyncMemory


async def call_memory(memory: AnyMemory, call: Callable[[AsyncMemory], Coroutine[Any, Any, R]]) -> R:
    """What the call comes to; a `Memory` does it in its own loop, so the caller's does not stand still."""
    if isinstance(memory, AsyncMemory):
        return await call(memory)
    return await asyncio.to_thread(memory._run, call)


def call_memory_blocking(memory: AnyMemory, call: Callable[[AsyncMemory], Coroutine[Any, Any, R]]) -> R:
    """What the call comes to, for who cannot await it."""
    if isinstance(memory, AsyncMemory):
        raise InvalidInput("an AsyncMemory can only be awaited; give a Memory, which serves both ways of calling")
    return memory._run(call)
