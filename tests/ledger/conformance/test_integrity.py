"""Counts and checks, many writers at once, and what is there when the ledger is opened again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from recollect.errors import Conflict, IdempotencyReuse, StoreUnavailable
from recollect.ledger.ledger import Ledger
from recollect.ledger.types import Revision
from recollect.model.change import Add, Forget, IdempotencyToken, Supersede, Update
from recollect.model.memory import Status
from recollect.model.query import EVERYTHING, Listing
from recollect.model.scope import Level, Scope
from recollect.model.turn import Conversation
from tests.support.ledger_samples import (
    ALL,
    ANN,
    BOB,
    BY,
    MODEL,
    NOON,
    ODD_TEXTS,
    Open,
    add,
    change,
    direction,
    everything,
    full_memory,
    memory,
    now_of,
    say,
    turn,
)

SESSION = Scope("ann", "p", "s")
USES = {
    "apply": lambda ledger: ledger.apply(ANN, [Add(memory())], by=BY),
    "undo": lambda ledger: ledger.undo(ANN, 1, by=BY),
    "append": lambda ledger: ledger.append(SESSION, [turn("hello")], vectors=[None], by=BY),
    "touch": lambda ledger: ledger.touch(ANN, ["id"], at=NOON),
    "get": lambda ledger: ledger.get(ANN, ["id"]),
    "find": lambda ledger: ledger.find(ANN, Listing()),
    "count": lambda ledger: ledger.count(ANN, Listing()),
    "history": lambda ledger: ledger.history(ANN),
    "entry": lambda ledger: ledger.entry(ANN, 1),
    "conversation": lambda ledger: ledger.conversation(SESSION),
    "turns": lambda ledger: ledger.turns(SESSION),
    "users": lambda ledger: ledger.users(),
    "lexical": lambda ledger: ledger.lexical(ANN, "tea"),
    "fetch": lambda ledger: ledger.fetch(ANN, [1], filter=EVERYTHING),
    "matching": lambda ledger: ledger.matching(ANN, EVERYTHING),
    "revision": lambda ledger: ledger.revision("ann"),
    "index_rows": lambda ledger: ledger.index_rows("ann", model=MODEL, after=0),
    "unembedded": lambda ledger: ledger.unembedded(MODEL, limit=1),
    "embed": lambda ledger: ledger.embed(MODEL, {1: direction(1)}, user="ann"),
    "models": lambda ledger: ledger.models(),
    "drop_model": lambda ledger: ledger.drop_model(MODEL),
    "stats": lambda ledger: ledger.stats(),
    "check": lambda ledger: ledger.check(),
    "cautions": lambda ledger: ledger.security_warnings(),
    "rebuild_terms": lambda ledger: ledger.rebuild_terms(),
}


class TestIntegrity:
    """Looking after the store."""

    async def test_a_new_ledger_is_empty_and_sound(self, ledger: Ledger) -> None:
        assert await ledger.users() == []
        assert await ledger.check() == []
        assert await ledger.models() == {}
        assert await ledger.revision("ann") == Revision()
        counts = dict(await ledger.stats())
        assert counts.pop("bytes") >= 0
        assert set(counts.values()) == {0}

    async def test_stats_count_what_there_is(self, ledger: Ledger) -> None:
        await change(ledger, Add(memory("tea"), direction(1)), Add(memory("Paris", key="city", id="old")))
        await change(ledger, Supersede("old", memory("Rome", key="city", id="new")))
        (gone,) = await add(ledger, memory("coffee"))
        await change(ledger, Forget(gone.id))
        await add(ledger, memory("maybe", status=Status.REVIEW))
        await say(ledger, SESSION, "one", "two")
        await add(ledger, memory("tea", scope=BOB))
        expected = {
            "memories": 2, "turns": 2, "superseded": 1, "review": 1, "forgotten": 1,
            "users": 1, "conversations": 1, "history": 9, "vectors": 1,
        }  # fmt: skip
        counts = await ledger.stats("ann")
        assert {name: counts[name] for name in expected} == expected
        total = await ledger.stats()
        assert (total["memories"], total["users"], total["history"]) == (3, 2, 10)
        assert total["bytes"] > 0

    async def test_stats_of_an_unknown_user_are_zero(self, ledger: Ledger) -> None:
        await add(ledger, memory())
        assert set((await ledger.stats("nobody")).values()) == {0}

    async def test_users_are_those_who_wrote_in_order(self, ledger: Ledger) -> None:
        for name in ("zoe", "ann", "Zed", "änne", "bob"):
            await add(ledger, memory(scope=Scope(name)))
        await say(ledger, Scope("carl", "", "s"), "hello")
        await ledger.find(Scope("dora"), Listing())
        await ledger.touch(Scope("eve"), ["id"], at=NOON)
        assert await ledger.users() == sorted(["zoe", "ann", "Zed", "änne", "bob", "carl"])

    async def test_a_ledger_that_was_used_is_sound(self, ledger: Ledger) -> None:
        for n, text in enumerate(ODD_TEXTS.values()):
            record = full_memory(text, scope=Scope(f"user {n % 3}"), status=Status.ACTIVE)
            await add(ledger, record)
            await change(ledger, Update(record.id, {"content": f"{text} {n}"}), scope=record.scope)
            await say(ledger, Scope(f"user {n % 3}", "", "s"), text)
        assert await ledger.check() == []

    async def test_a_closed_ledger_says_that_it_is_closed(self, ledger: Ledger) -> None:
        await add(ledger, memory())
        await ledger.close()
        assert {name: await _refusal(use, ledger) for name, use in USES.items()} == dict.fromkeys(USES, "closed")

    async def test_a_ledger_can_be_closed_twice(self, ledger: Ledger) -> None:
        await ledger.close()
        await ledger.close()

    async def test_many_writers_lose_nothing(self, ledger: Ledger) -> None:
        async def write(who: int) -> None:
            for n in range(5):
                await add(ledger, memory(f"{who} says {n}", scope=Scope(f"user {who % 4}")))

        await asyncio.gather(*(write(who) for who in range(20)))
        counts = [await ledger.count(Scope(f"user {n}"), ALL) for n in range(4)]
        assert counts == [25] * 4
        assert await ledger.check() == []

    async def test_writers_who_read_and_retry_lose_no_update(self, ledger: Ledger) -> None:
        (shared,) = await add(ledger, memory(metadata={"n": 0}))
        await asyncio.gather(*(_count_up(ledger, shared.id) for _ in range(10)))
        results = await now_of(ledger, shared)
        assert (results.metadata, results.version) == ({"n": 10}, 11)

    async def test_everything_is_there_when_opened_again(self, ledger: Ledger, store: Open) -> None:
        odd = [full_memory(text, status=Status.ACTIVE) for text in ODD_TEXTS.values()]
        await change(ledger, *(Add(record, direction(n)) for n, record in enumerate(odd)))
        await change(ledger, Update(odd[0].id, {"content": "green tea"}), Forget(odd[1].id))
        await say(ledger, SESSION, "hello", "tea?")
        await ledger.touch(ANN, [odd[2].id], at=NOON)
        before = await everything(ledger, ["ann"])
        turns = await ledger.turns(SESSION)
        await ledger.close()
        repeated = await store()
        assert await everything(repeated, ["ann"]) == before
        assert (await repeated.turns(SESSION), (await repeated.conversation(SESSION)).turn_count) == (turns, 2)
        assert await repeated.models() == {MODEL: len(odd) - 1}
        assert await repeated.check() == []
        await repeated.close()

    async def test_an_idempotency_key_is_known_when_opened_again(self, ledger: Ledger, store: Open) -> None:
        first = await ledger.apply(ANN, [Add(memory())], by=BY, once=IdempotencyToken("key", "digest"))
        await ledger.close()
        repeated = await store()
        replay = await repeated.apply(ANN, [Add(memory("other"))], by=BY, once=IdempotencyToken("key", "digest"))
        assert (replay.replayed, replay.batch, replay.outcomes) == (True, first.batch, first.outcomes)
        with pytest.raises(IdempotencyReuse):
            await repeated.apply(ANN, [Add(memory("other"))], by=BY, once=IdempotencyToken("key", "another"))
        await repeated.close()

    async def test_an_idempotency_key_claimed_by_one_ledger_is_pending_in_the_other(
        self, ledger: Ledger, store: Open
    ) -> None:
        once, other = IdempotencyToken("key", "digest"), await store()
        assert (await ledger.claim_key("ann", once)).is_owner
        assert not (await other.claim_key("ann", once)).is_owner
        await ledger.store_answer("ann", once, {"status": 200})
        assert (await other.claim_key("ann", once)).answer == {"status": 200}
        await other.close()

    async def test_a_write_of_one_ledger_is_read_by_the_other_at_once(self, ledger: Ledger, store: Open) -> None:
        other = await store()
        (one,) = await add(ledger, memory("tea"))
        assert await other.get(ANN, [one.id]) == [one]
        assert len((await other.lexical(ANN, "tea")).rows) == 1
        await change(other, Update(one.id, {"content": "coffee"}))
        assert (await now_of(ledger, one)).content == "coffee"
        assert await ledger.revision("ann") == await other.revision("ann") != Revision()
        await other.close()

    async def test_two_ledgers_on_one_store_keep_every_invariant(self, ledger: Ledger, store: Open) -> None:
        other = await store()
        both = (ledger, other)
        (shared,) = await add(ledger, memory("shared", metadata={"n": 0}))
        once = IdempotencyToken("key", "digest")
        await asyncio.gather(
            *(each.apply(ANN, [Add(memory(f"once {n}"))], by=BY, once=once) for n in range(10) for each in both),
            *(add(each, memory("the same words")) for _ in range(10) for each in both),
            *(say(each, SESSION, f"{n}") for n in range(10) for each in both),
            *(_count_up(each, shared.id) for _ in range(5) for each in both),
        )
        for each in both:
            assert await each.count(ANN, Listing()) == 1 + 1 + 1 + 20
            assert [turns.position for turns in await each.turns(SESSION)] == list(range(1, 21))
            assert (await now_of(each, shared)).metadata == {"n": 10}
        assert await ledger.check() == []
        await other.close()

    async def test_a_key_is_given_one_value_by_two_at_once(self, ledger: Ledger, store: Open) -> None:
        other = await store()
        tries = [add(each, memory(f"city {n}", key="city")) for n, each in enumerate([ledger, other] * 8)]
        await asyncio.gather(*tries)
        assert await ledger.count(ANN, Listing()) == 1
        assert await ledger.count(ANN, ALL) == 16
        await other.close()

    async def test_closing_one_leaves_the_other_open(self, ledger: Ledger, store: Open) -> None:
        other = await store()
        await other.close()
        await add(ledger, memory(scope=Scope("ann", "p"), level=Level.PROJECT))
        assert await ledger.conversation(SESSION) == Conversation(scope=SESSION)


async def _refusal(use: Callable[[Ledger], Awaitable[object]], ledger: Ledger) -> str:
    try:
        await use(ledger)
    except StoreUnavailable as error:
        return "closed" if "closed" in str(error) else str(error)
    return "answered"


async def _count_up(ledger: Ledger, id: str) -> None:
    """Add one to a number in metadata, again and again until nobody came between."""
    while True:
        (results,) = await ledger.get(ANN, [id])
        fields = {"metadata": {"n": results.metadata["n"] + 1}}
        try:
            await change(ledger, Update(id, fields, expected_version=results.version))
            return
        except Conflict:
            continue
