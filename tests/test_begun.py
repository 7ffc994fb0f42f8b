"""Sessions that begin before anything is said in them, and what agents tell of their invocations."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from remember_samples import opened_async

from recollect import AsyncMemory
from recollect.care import Operations
from recollect.errors import NotFound
from recollect.model.change import Author
from recollect.model.scope import Scope

HERE = Scope("alex", "", "monday")
BY = Author("test")


def invocation(number: int) -> dict[str, str]:
    return {"query": f"question {number}", "summary": "", "result": "", "timestamp": "2026-03-15T10:00:00+00:00"}


async def service_of(memory: AsyncMemory) -> Operations:
    return (await memory._open()).operations


@pytest.fixture(params=["sqlite", "memory:"])
def more(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {} if request.param == "sqlite" else {"database": request.param}


async def test_a_session_is_there_once_it_was_begun(tmp_path: Path, more: dict[str, Any]) -> None:
    async with opened_async(tmp_path, **more) as memory:
        care = await service_of(memory)
        with pytest.raises(NotFound, match="no session monday"):
            await care.session(HERE)
        started = await care.begin_session(HERE, by=BY)
        assert (started.scope, started.turn_count) == (HERE, 0)
        assert await care.session(HERE) == started
        # Again changes nothing, and neither another user nor another project has it.
        assert await care.begin_session(HERE, by=BY) == started
        for other in (Scope("eve", "", "monday"), Scope("alex", "work", "monday")):
            with pytest.raises(NotFound):
                await care.session(other)


async def test_many_who_begin_a_session_at_once_begin_one(tmp_path: Path) -> None:
    async with opened_async(tmp_path) as memory:
        care = await service_of(memory)
        started = await asyncio.gather(*(care.begin_session(HERE, by=BY) for _ in range(20)))
        assert len({str(each.metadata) for each in started}) == 1


async def test_what_many_invocations_came_to_is_all_kept(tmp_path: Path, more: dict[str, Any]) -> None:
    async with opened_async(tmp_path, **more) as memory:
        care = await service_of(memory)
        await asyncio.gather(*(care.record_invocation(HERE, invocation(number)) for number in range(20)))
        report = {each["query"] for each in (await care.session(HERE)).invocations}
        assert report == {f"question {number}" for number in range(20)}


async def test_an_erased_session_has_not_begun(tmp_path: Path) -> None:
    async with opened_async(tmp_path) as memory:
        care = await service_of(memory)
        await care.begin_session(HERE, by=BY)
        await memory.erase(user_id="alex", session_id="monday")
        with pytest.raises(NotFound):
            await care.session(HERE)
