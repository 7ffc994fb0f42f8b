"""Many processes on one ledger: no busy errors, nothing is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recollect.errors import IdempotencyReuse
from recollect.model.change import Add
from recollect.model.query import Listing
from recollect.model.scope import Scope
from tests.drills.children import Crowd, add_the_same, ask, ask_once, barrier, queue, start, write_concurrently
from tests.drills.findings import everything
from tests.drills.notes import Notes
from tests.drills.sizes import Sizes
from tests.drills.stores import open_store
from tests.drills.writers import BY, Writer, record

WRITERS = 8
SAME = 50
REQUESTS = 100


async def _answers(
    body: Callable[..., Any], processes: int, arguments: Callable[[int], tuple[Any, ...]]
) -> list[Any]:
    """Run the body in so many concurrent processes; return their answers."""
    meet, answers = barrier(processes), queue()
    children = [start(body, *arguments(number), meet, answers) for number in range(processes)]
    inputs: list[Any] = []
    while any(child.is_alive() for child in children) or not answers.empty():
        inputs += [] if answers.empty() else [answers.get()]
        await asyncio.sleep(0.005)
    assert [child.exitcode for child in children] == [0] * processes
    return inputs


async def test_many_processes_write_at_once_and_none_of_them_waits_in_vain(
    store: str, sizes: Sizes, say: Callable[[str], None]
) -> None:
    scope = Scope("everyone")
    ledger = await open_store(store)
    await ledger.apply(scope, [Add(record(scope, "counter", "how often it was counted"))], by=BY)
    on_postgres = store.startswith("postgresql")
    adds = sizes.writes_of_each_writer_on_postgres if on_postgres else sizes.writes_of_each_writer
    task = Crowd("counter", adds, sizes.increments_of_each_writer)
    fared = await _answers(
        write_concurrently, sizes.processes, lambda n: (store, range(n * WRITERS, (n + 1) * WRITERS), task)
    )
    assert [error for each in fared for error in each.errors] == []
    writers = sizes.processes * WRITERS
    ids = [each.id for user in await ledger.users() for each in await everything(ledger, user)]
    expected = [f"{writer}-{n}" for writer in range(writers) for n in range(task.adds)]
    assert sorted(ids) == sorted([*expected, "counter"])
    [counter] = await ledger.get(scope, ["counter"])
    increments = writers * task.increments
    assert sum(each.increments for each in fared) == increments
    # Every acknowledged increment is in the sum, and made one version.
    assert (counter.value, counter.version) == (str(increments), increments + 1)
    assert await ledger.check() == []
    await ledger.close()
    slowest = max(each.slowest_s for each in fared)
    rate = (len(expected) + increments) / max(each.took_s for each in fared)
    conflicts = sum(each.conflicts for each in fared)
    say(
        f"{len(expected):,} rows, {rate:,.0f} writes a second, slowest add {slowest:.2f} s; "
        f"{increments} increments, {conflicts} conflicts"
    )


async def test_the_counter_shows_when_writers_do_not_say_what_they_have_seen(tmp_path: Path) -> None:
    scope, store = Scope("everyone"), str(tmp_path / "recollect.db")
    ledger = await open_store(store)
    await ledger.apply(scope, [Add(record(scope, "counter", "how often it was counted"))], by=BY)
    careless = Crowd("counter", adds=0, increments=5, careful=False)
    fared = await _answers(write_concurrently, 2, lambda n: (store, range(WRITERS), careless))
    [counter] = await ledger.get(scope, ["counter"])
    assert int(counter.value or 0) < sum(each.increments for each in fared)
    await ledger.close()


async def test_the_same_fact_said_by_many_at_once_is_stored_once(store: str) -> None:
    await (await open_store(store)).close()
    inputs = [each for answer in await _answers(add_the_same, 2, lambda n: (store, SAME // 2)) for each in answer]
    assert len(inputs) == SAME
    assert len({id for id, _ in inputs}) == 1
    assert sum(changed for _, changed in inputs) == 1
    ledger = await open_store(store)
    assert await ledger.count(Scope("user"), Listing()) == 1
    await ledger.close()


async def test_requests_with_one_idempotency_key_have_one_effect_and_the_same_answer(store: str) -> None:
    await (await open_store(store)).close()
    half = REQUESTS // 2
    inputs = [
        each
        for answer in await _answers(ask_once, 2, lambda n: (store, range(n * half, (n + 1) * half)))
        for each in answer
    ]
    assert len(inputs) == REQUESTS
    assert len({(batch, *contents) for batch, contents, _ in inputs}) == 1
    assert sum(not replayed for _, _, replayed in inputs) == 1

    # The answer is the same after a restart; another request with the key is rejected.
    ledger = await open_store(store)
    repeated = await ask(ledger, REQUESTS)
    assert repeated.replayed
    assert repeated.batch == inputs[0][0]
    with pytest.raises(IdempotencyReuse):
        await ask(ledger, REQUESTS, digest="another")
    assert await ledger.count(Scope("user"), Listing()) == 1
    await ledger.close()


async def test_a_check_finds_nothing_wrong_with_a_ledger_that_others_write_to(
    store: str, seed: int, tmp_path: Path
) -> None:
    ours, rest = await open_store(store), await open_store(store)
    writer, notes = Writer(1, user="user", seed=seed), Notes(tmp_path / "notes")
    for _ in range(3):
        await asyncio.gather(*(ours.lexical(Scope("user"), "amber") for _ in range(8)))
        await writer.go_on(rest, notes, steps=20)
        assert await ours.check() == []
    await ours.close()
    await rest.close()
