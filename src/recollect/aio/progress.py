"""Report progress from a thread of its own, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager


@asynccontextmanager
async def report_in_thread(progress: Callable[[int], None]) -> AsyncIterator[Callable[[int], None]]:
    """Yield a function that calls `progress` in a thread; exceptions of `progress` are raised here."""
    loop, calls = asyncio.get_running_loop(), list[asyncio.Future[None]]()
    with ThreadPoolExecutor(1, thread_name_prefix="recollect-progress") as pool:

        def report(done: int) -> None:
            if calls and calls[-1].done():
                calls.pop().result()
            calls.append(loop.run_in_executor(pool, progress, done))

        try:
            yield report
        finally:
            await asyncio.gather(*calls)
