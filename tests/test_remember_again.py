"""What was said comes again: nothing is kept twice, nothing is learned twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from recollect.errors import InvalidInput
from recollect.ledger.again import dedupe_turns
from recollect.model.change import Author
from recollect.model.erase import Erasure, ErasureRequest, Target, user_digest
from recollect.model.ids import new_id
from recollect.model.job import JobKind
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Role, Turn
from recollect.service import Service
from recollect.settings import load
from recollect.wiring import open_service

ANN = Scope("ann", "", "monday")
BY = Author("test")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    service = await open_service(load({"home": tmp_path}, environ={}).settings)
    yield service
    await service.close()


async def test_a_message_that_names_its_turn_is_kept_once(service: Service) -> None:
    messages = [{"role": "user", "content": "I live in Lisbon.", "turn_id": new_id()}]
    first = await service.remember(ANN, messages, by=BY)
    await service.operations.run_pending()
    repeated = await service.remember(ANN, messages, by=BY)
    assert (repeated.turns, repeated.job) == (first.turns, None)
    assert first[0].id == messages[0]["turn_id"]
    assert [turn.content for turn in await service.turns(ANN)] == ["I live in Lisbon."]
    assert len([job for job in await service.operations.jobs("ann") if job.kind is JobKind.EXTRACT]) == 1


async def test_the_same_said_many_times_at_once_is_kept_once(service: Service) -> None:
    messages = [{"role": "user", "content": f"{n}", "turn_id": f"turn-{n}"} for n in range(3)]
    stored = await asyncio.gather(*(service.remember(ANN, messages, by=BY) for _ in range(10)))
    assert {each.turns for each in stored} == {stored[0].turns}
    assert [turn.position for turn in await service.turns(ANN)] == [1, 2, 3]


async def test_what_was_given_before_an_erasure_is_not_kept_after_it(service: Service) -> None:
    received_at = now() - timedelta(seconds=1)
    await service.operations.erase(Scope("ann"), ErasureRequest(Target.USER), by=BY)
    body = {"role": "user", "content": "I live in Lisbon.", "turn_id": new_id()}
    assert (await service.remember(ANN, body, by=BY, received_at=received_at)).turns == ()
    assert await service.users() == []
    assert len(await service.remember(ANN, body, by=BY)) == 1


@pytest.mark.parametrize("id", ["", "a\nb", 7, "x" * 1000])
async def test_an_id_that_is_none_is_refused(service: Service, id: object) -> None:
    with pytest.raises(InvalidInput, match="turn_id"):
        await service.remember(ANN, {"role": "user", "content": "hello", "turn_id": id}, by=BY)


def test_an_erasure_of_the_future_keeps_nothing_out() -> None:
    # A clock was a day ahead when something was erased, and was put right since.
    text = Turn(id=new_id(), scope=ANN, role=Role.USER, content="tea", said_at=now())
    for ahead, new in ((timedelta(days=1), [0]), (timedelta(seconds=1), [])):
        erasure = Erasure(id="e", at=now() + ahead, user=user_digest("ann"), target=Target.USER)
        assert dedupe_turns(ANN, [text], stored={}, erasures=[erasure]).new_indexes == new
