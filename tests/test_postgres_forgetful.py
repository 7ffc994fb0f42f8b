"""A statement of the ledger that forgets its user reads and changes nobody else's rows."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from rows_samples import ANN, Store, opened

from recollect.errors import NotFound
from recollect.ledger import postgres_dialect
from recollect.ledger.sql.ledger import SqlLedger
from recollect.model.change import Update
from recollect.model.erase import ErasureRequest, Target
from recollect.model.memory import Status
from recollect.model.query import EVERYTHING, Listing
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.testing.postgres_server import PLAIN_ROLE, SUPERUSER
from recollect.testing.suite_samples import BY, MODEL, direction


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async for each in opened(PLAIN_ROLE):
        yield each


@pytest.fixture
async def unguarded() -> AsyncIterator[Store]:
    """The same for a role that no policy holds for."""
    async for each in opened(SUPERUSER):
        yield each


def forget_to_name_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no statement of the ledger says whose rows it means."""
    real = postgres_dialect.positional
    of_user = re.compile(r"(\w+\.)?user_id = :(user|digest)\b|(?<=WHERE )number = :number")
    monkeypatch.setattr(postgres_dialect, "positional", lambda sql: real(of_user.sub("TRUE", sql)))


async def tells_of_bob(store: Store, question: Callable[[SqlLedger, dict[str, Any]], Awaitable[Any]]) -> bool:
    """Whether an answer holds bob's name or an id of his."""
    try:
        answer = repr(await question(store.ledger, store.ids["bob"]))
    except NotFound:
        return False
    return any(word in answer for word in ("bob", *(store.ids["bob"][kind] for kind in ("memory", "turn", "job"))))


# Each asks as ann for what is bob's, or for all that there is.
READS: dict[str, Callable[[SqlLedger, dict[str, Any]], Awaitable[Any]]] = {
    "get": lambda ledger, of_bob: ledger.get(ANN, [of_bob["memory"]]),
    "find": lambda ledger, of_bob: ledger.find(ANN, Listing(statuses=tuple(Status), limit=100)),
    "history": lambda ledger, of_bob: ledger.history(ANN),
    "entry": lambda ledger, of_bob: ledger.entry(ANN, of_bob["entry"]),
    "turns": lambda ledger, of_bob: ledger.turns(ANN),
    "fetch": lambda ledger, of_bob: ledger.fetch(ANN, [of_bob["row"]], filter=EVERYTHING),
    "keyed": lambda ledger, of_bob: ledger.keyed_facts(ANN, EVERYTHING, min_importance=0, limit=10),
    "job": lambda ledger, of_bob: ledger.job("ann", of_bob["job"]),
    "jobs": lambda ledger, of_bob: ledger.jobs("ann"),
    "conversations": lambda ledger, of_bob: ledger.conversations("ann"),
}


@pytest.mark.parametrize("name", READS)
async def test_a_statement_that_forgets_its_user_reads_nobody_elses_rows(
    store: Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    forget_to_name_the_user(monkeypatch)
    assert not await tells_of_bob(store, READS[name])


async def test_without_policies_such_statements_would_read_and_erase_them(
    unguarded: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_to_name_the_user(monkeypatch)
    for name, question in READS.items():
        assert await tells_of_bob(unguarded, question), name
    await unguarded.ledger.erase(Scope("ann"), ErasureRequest(Target.USER), by=BY)
    assert not (await unguarded.everything("bob"))["memories"]


async def test_counts_and_rows_for_an_index_are_ones_own(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = store.ledger

    async def counted() -> list[Any]:
        rows = await ledger.index_rows("ann", model=MODEL, after=0)
        matching = sorted(await ledger.matching(ANN, EVERYTHING))
        jobs = (await ledger.job_stats("ann")).waiting
        return [rows, matching, await ledger.stats("ann"), await ledger.usage("ann"), jobs]

    before = await counted()
    forget_to_name_the_user(monkeypatch)
    assert await counted() == before


@pytest.mark.parametrize(
    ("scope", "target"), [(Scope("ann"), Target.USER), (Scope("ann", "p"), Target.PROJECT), (ANN, Target.SESSION)]
)
async def test_an_erasure_that_forgets_its_user_leaves_others_whole(
    store: Store, monkeypatch: pytest.MonkeyPatch, scope: Scope, target: Target
) -> None:
    before = await store.everything("bob")
    forget_to_name_the_user(monkeypatch)
    await store.ledger.erase(scope, ErasureRequest(target), by=BY)
    assert await store.everything("bob") == before
    assert not (await store.everything("ann"))["memories"]


async def test_changes_that_forget_their_user_leave_others_whole(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, of_bob = await store.everything("bob"), store.ids["bob"]
    forget_to_name_the_user(monkeypatch)
    await store.ledger.touch(ANN, [of_bob["memory"]], at=now())
    with pytest.raises(NotFound):
        await store.ledger.apply(ANN, [Update(of_bob["memory"], {"importance": 0.1})], by=BY)
    with pytest.raises(NotFound):
        await store.ledger.undo(ANN, of_bob["entry"], by=BY)
    assert await store.ledger.cancel("ann", [of_bob["job"]]) == []
    await store.ledger.embed(MODEL, {of_bob["row"]: direction(7)}, user="ann")
    assert await store.everything("bob") == before
