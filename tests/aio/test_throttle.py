"""The throttle lets callers pass one per iteration of the event loop."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from recollect.aio.throttle import LoopThrottle


async def test_a_single_caller_passes_in_the_same_iteration() -> None:
    turns, passed = LoopThrottle(), asyncio.Event()
    asyncio.get_running_loop().call_soon(passed.set)
    await turns.acquire()
    assert not passed.is_set()


async def test_each_caller_passes_in_its_own_iteration_in_order() -> None:
    turns, seen = LoopThrottle(), list[str]()

    async def search(number: int) -> None:
        await turns.acquire()
        seen.append(f"search {number}")

    async def beat() -> None:
        while len(seen) < 20:
            seen.append("beat")
            await asyncio.sleep(0)

    await asyncio.gather(beat(), *(search(number) for number in range(5)))
    assert [each for each in seen if each != "beat"] == [f"search {number}" for number in range(5)]
    together = [each for each, after in pairwise(seen) if "beat" not in (each, after)]
    assert not together, seen


async def test_several_callers_pass_per_iteration() -> None:
    turns, started = LoopThrottle(3), list[int]()

    async def begin(number: int) -> None:
        await turns.acquire()
        started.append(number)

    tasks = [asyncio.create_task(begin(number)) for number in range(8)]
    seen = []
    while len(started) < 8:
        await asyncio.sleep(0)
        seen.append(len(started))
    assert started == list(range(8))
    assert max(after - before for before, after in pairwise([0, *seen])) == 3
    await asyncio.gather(*tasks)


async def test_a_cancelled_caller_does_not_block_others() -> None:
    turns = LoopThrottle()
    await turns.acquire()
    waiting = [asyncio.create_task(turns.acquire()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    async with asyncio.timeout(300):
        await asyncio.gather(*waiting[1:])
        await turns.acquire()


def test_a_closed_loop_does_not_block_another() -> None:
    turns = LoopThrottle()
    for _ in range(3):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(turns.acquire())
        loop.close()
