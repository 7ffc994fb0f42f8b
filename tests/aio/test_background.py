"""Background tasks are started once and stopped in their event loop."""

from __future__ import annotations

import asyncio

from recollect.aio.background import BackgroundTask


class Work:
    """Record starts and cancellation."""

    def __init__(self) -> None:
        self.start_count = 0
        self.was_cancelled = False

    async def run(self) -> None:
        self.start_count += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


async def test_a_task_runs_once_and_can_be_restarted() -> None:
    work = Work()
    task = BackgroundTask(work.run)
    task.start()
    task.start()
    await asyncio.sleep(0)
    assert work.start_count == 1
    assert task.is_running
    await task.stop()
    assert work.was_cancelled
    assert not task.is_running
    assert not task.was_started
    task.start()
    await asyncio.sleep(0)
    assert work.start_count == 2
    await task.stop()


async def test_waiting_for_a_task_ignores_its_error() -> None:
    async def fail() -> None:
        raise ValueError("told to nobody")

    task = BackgroundTask(fail)
    task.start()
    await task.wait()
    assert task.was_started
    assert not task.is_running


def test_a_task_of_a_closed_loop_is_ignored() -> None:
    work = Work()
    task = BackgroundTask(work.run)

    async def begin() -> bool:
        was_running = task.is_running
        task.start()
        await asyncio.sleep(0)
        return was_running

    assert not asyncio.run(begin())
    assert not asyncio.run(begin())
    assert work.start_count == 2
    asyncio.run(task.stop())


async def test_cancelling_stop_cancels_the_caller() -> None:
    at_its_end, may_end = asyncio.Event(), asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            at_its_end.set()
            await may_end.wait()

    task = BackgroundTask(slow_to_end)
    task.start()
    await asyncio.sleep(0)
    stopping = asyncio.create_task(task.stop())
    await at_its_end.wait()
    stopping.cancel()
    await asyncio.wait([stopping])
    assert stopping.cancelled()
    may_end.set()
