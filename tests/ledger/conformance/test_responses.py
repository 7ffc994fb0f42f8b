"""Responses and threads: kept for their user, gone on from, deleted, expired."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recollect.errors import Conflict, NotFound
from recollect.ledger.ledger import Ledger
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.response import ThreadItems
from recollect.model.scope import Scope
from recollect.model.times import now
from tests.support.ledger_samples import BY, ODD_TEXTS, TALK, Open, items, keep, response, say, thread

ANN, BOB = TALK, Scope("bob", "p", "s")


async def chain_of(ledger: Ledger, id: str, scope: Scope = ANN) -> list[str]:
    return [each.id for each in await ledger.response_chain(scope, id)]


async def ids_in(ledger: Ledger, thread_id: str = "conv_1", **page: Any) -> list[str]:
    return [each["id"] for each in await ledger.thread_items(ANN, thread_id, **page)]


class TestResponse:
    """What OpenAI's clients expect to find again."""

    async def test_a_response_comes_back_as_it_was_kept(self, ledger: Ledger) -> None:
        whole = response(
            previous_id="resp_0", root_id="resp_0", thread_id="conv_1", upstream="main", epoch=3, names=("t1", "t2")
        )
        await keep(ledger, whole)
        assert await ledger.response(ANN, "resp_1") == whole
        assert await ledger.response(Scope("ann"), "resp_1") == whole
        changed = replace(whole, body={"id": "resp_1", "status": "cancelled"}, expires_at=None, input_items=())
        await keep(ledger, changed)
        assert await ledger.response(ANN, "resp_1") == changed

    async def test_any_text_can_be_in_a_response_and_in_an_item(self, ledger: Ledger) -> None:
        for text in [*ODD_TEXTS.values(), "\0", "\ud83c"]:
            await keep(ledger, response(text=text))
            assert (await ledger.response(ANN, "resp_1")).body["output"] == [{"text": text}]
            await ledger.save_thread(ANN, thread(metadata={"a": text}))
            await ledger.add_items(ANN, ThreadItems("conv_1", [{"id": "msg_1", "content": text}]))
            assert (await ledger.thread_item(ANN, "conv_1", "msg_1"))["content"] == text
            assert (await ledger.thread(ANN, "conv_1")).metadata == {"a": text}
            await ledger.drop_thread(ANN, "conv_1")

    async def test_unknown_expired_and_foreign_ids_are_not_found_alike(self, ledger: Ledger) -> None:
        await keep(ledger, response("resp_bob", scope=BOB), response("resp_old", expires_at=now()))
        await ledger.save_thread(BOB, thread("conv_bob", scope=BOB))
        await ledger.save_thread(ANN, thread("conv_old", expires_at=now()))
        await ledger.add_items(BOB, items("msg_bob", thread_id="conv_bob"))
        for id in ("resp_bob", "resp_old", "resp_none", "", "\0", "\ud83c", "a' OR 1=1 --"):
            for call in (ledger.response(ANN, id), ledger.response_chain(ANN, id), ledger.drop_response(ANN, id)):
                with pytest.raises(NotFound, match=r"^no response"):
                    await call
        for id in ("conv_bob", "conv_old", "conv_none", "", "\0", "\ud83c"):
            for request in (
                ledger.thread(ANN, id), ledger.drop_thread(ANN, id), ledger.thread_items(ANN, id),
                ledger.add_items(ANN, items("m", thread_id=id)), ledger.thread_item(ANN, id, "msg_bob"),
                ledger.drop_item(ANN, id, "msg_bob"),
            ):  # fmt: skip
                with pytest.raises(NotFound, match=r"^no conversation"):
                    await request
        assert (await ledger.response(BOB, "resp_bob")).scope == BOB
        assert len(await ledger.thread_items(BOB, "conv_bob")) == 1

    async def test_two_users_can_have_the_same_ids(self, ledger: Ledger) -> None:
        await keep(ledger, response(text="tea"), response(scope=BOB, text="milk"))
        await ledger.drop_response(ANN, "resp_1")
        assert (await ledger.response(BOB, "resp_1")).body["output"] == [{"text": "milk"}]

    async def test_a_chain_is_told_from_its_beginning(self, ledger: Ledger) -> None:
        last = ""
        for n in range(40):
            await keep(ledger, response(f"resp_{n}", previous_id=last, root_id="resp_0"))
            last = f"resp_{n}"
        await keep(ledger, response("resp_b", previous_id="resp_3", root_id="resp_0"))
        assert await chain_of(ledger, "resp_39") == [f"resp_{n}" for n in range(40)]
        assert await chain_of(ledger, "resp_b") == ["resp_0", "resp_1", "resp_2", "resp_3", "resp_b"]
        assert await chain_of(ledger, "resp_0") == ["resp_0"]

    async def test_a_chain_never_leads_to_another_user(self, ledger: Ledger) -> None:
        await keep(ledger, response("resp_0", scope=BOB), response(previous_id="resp_0", root_id="resp_0"))
        assert await chain_of(ledger, "resp_1") == ["resp_1"]

    async def test_what_went_on_from_a_deleted_response_goes_on_from_the_one_before(self, ledger: Ledger) -> None:
        for n in range(4):
            before = f"resp_{n - 1}" if n else ""
            await keep(ledger, response(f"resp_{n}", previous_id=before, root_id="resp_0", upstream="main"))
        await ledger.drop_response(ANN, "resp_1")
        chain = await ledger.response_chain(ANN, "resp_3")
        assert [each.id for each in chain] == ["resp_0", "resp_2", "resp_3"]
        # The upstream still knows what was deleted, so it must not be asked to go on from what came after.
        assert [each.epoch for each in chain] == [0, -1, -1]
        with pytest.raises(NotFound):
            await ledger.response(ANN, "resp_1")
        await ledger.drop_response(ANN, "resp_0")
        assert await chain_of(ledger, "resp_3") == ["resp_2", "resp_3"]

    async def test_items_of_a_thread_are_paged_in_both_orders(self, ledger: Ledger) -> None:
        await ledger.save_thread(ANN, thread())
        await ledger.add_items(ANN, items("c", "a"))
        await ledger.add_items(ANN, items("d", "b"))
        assert await ids_in(ledger) == ["c", "a", "d", "b"]
        assert await ids_in(ledger, newest_first=True, limit=2) == ["b", "d"]
        assert await ids_in(ledger, newest_first=True, after="d") == ["a", "c"]
        assert await ids_in(ledger, after="a", limit=1) == ["d"]
        assert await ids_in(ledger, after="b") == await ids_in(ledger, after="nobody") == []
        await ledger.drop_item(ANN, "conv_1", "d")
        await ledger.add_items(ANN, items("e"))
        assert await ids_in(ledger) == ["c", "a", "b", "e"]
        assert (await ledger.thread_item(ANN, "conv_1", "e"))["content"] == "words of e"
        with pytest.raises(NotFound):
            await ledger.thread_item(ANN, "conv_1", "d")

    async def test_an_item_is_in_a_thread_once(self, ledger: Ledger) -> None:
        await ledger.save_thread(ANN, thread())
        await ledger.add_items(ANN, items("a"))
        for twice in (items("b", "a"), items("b", "b")):
            with pytest.raises(Conflict):
                await ledger.add_items(ANN, twice)
        assert await ids_in(ledger) == ["a"]

    async def test_a_thread_keeps_what_it_is_told_and_its_items(self, ledger: Ledger) -> None:
        first = thread()
        await ledger.save_thread(ANN, first)
        await ledger.add_items(ANN, items("a"))
        await ledger.save_thread(ANN, replace(first, metadata={"c": "d"}))
        assert await ledger.thread(ANN, "conv_1") == replace(first, metadata={"c": "d"})
        assert await ids_in(ledger) == ["a"]
        longer = now() + timedelta(days=60)
        await ledger.add_items(ANN, items("b", expires_at=longer))
        assert (await ledger.thread(ANN, "conv_1")).expires_at == longer

    async def test_a_response_and_its_items_are_kept_both_or_neither(self, ledger: Ledger) -> None:
        await ledger.save_thread(ANN, thread())
        await keep(ledger, response(), items=items("a"))
        assert await ids_in(ledger) == ["a"]
        with pytest.raises(Conflict):
            await keep(ledger, response("resp_2"), items=items("b", "a"))
        with pytest.raises(NotFound):
            await keep(ledger, response("resp_2"), items=items("b", thread_id="conv_none"))
        with pytest.raises(NotFound):
            await ledger.response(ANN, "resp_2")

    async def test_concurrent_adds_of_items_lose_nothing(self, ledger: Ledger) -> None:
        await ledger.save_thread(ANN, thread())
        await asyncio.gather(*(ledger.add_items(ANN, items(f"m{n}", f"n{n}")) for n in range(20)))
        results = await ids_in(ledger)
        assert sorted(results) == sorted(f"{kind}{n}" for n in range(20) for kind in "mn")
        assert all(results[at + 1] == f"n{id[1:]}" for at, id in enumerate(results) if id.startswith("m"))

    async def test_what_expired_is_pruned_but_a_chain_only_as_a_whole(self, ledger: Ledger) -> None:
        soon, past = now() + timedelta(days=30), now() - timedelta(hours=1)
        await keep(
            ledger,
            response("resp_0", expires_at=past),
            response("resp_1", previous_id="resp_0", root_id="resp_0", expires_at=soon),
            response("resp_old", expires_at=past),
            response("resp_older", previous_id="resp_old", root_id="resp_old", expires_at=past),
            response("resp_ever", expires_at=None),
        )
        for id, at in (("conv_old", past), ("conv_new", soon)):
            await ledger.save_thread(ANN, thread(id))
            await ledger.add_items(ANN, items("a", thread_id=id))
            await ledger.save_thread(ANN, thread(id, expires_at=at))
        assert await ledger.prune_responses(past) == 0
        assert await ledger.prune_responses(now()) == 3
        assert await ledger.prune_responses(now()) == 0
        assert await chain_of(ledger, "resp_1") == ["resp_0", "resp_1"]
        assert await chain_of(ledger, "resp_ever") == ["resp_ever"]
        await ledger.save_thread(ANN, thread("conv_old"))
        assert await ids_in(ledger, "conv_old") == []
        assert await ids_in(ledger, "conv_new") == ["a"]

    async def test_they_are_there_after_the_ledger_was_opened_again(self, store: Open) -> None:
        ledger = await store()
        await keep(ledger, response())
        await ledger.save_thread(ANN, thread())
        await ledger.add_items(ANN, items("a"))
        await ledger.close()
        ledger = await store()
        assert await chain_of(ledger, "resp_1") == ["resp_1"]
        assert await ids_in(ledger) == ["a"]
        await ledger.close()


OTHER = Scope("ann", "p", "other")


async def fill(ledger: Ledger) -> None:
    """A response and a thread with an item in two sessions of Ann's, and in one of Bob's."""
    for scope, n in ((ANN, 1), (OTHER, 2), (BOB, 3)):
        await say(ledger, scope, "tea")
        epoch = (await ledger.revision(scope.user)).epoch
        await keep(ledger, response(f"resp_{n}", scope=scope, epoch=epoch))
        await ledger.save_thread(scope, thread(f"conv_{n}", scope=scope))
        await ledger.add_items(scope, items("a", thread_id=f"conv_{n}"))


async def left(ledger: Ledger) -> set[int]:
    """Which of them are still there, wholly."""
    there = set()
    for scope, n in ((ANN, 1), (OTHER, 2), (BOB, 3)):
        results = 0
        for call in (ledger.response(scope, f"resp_{n}"), ledger.thread(scope, f"conv_{n}")):
            try:
                await call
                results += 1
            except NotFound:
                pass
        assert results in (0, 2)
        there |= {n} if results else set()
    return there


class TestResponseErase:
    """Nothing of what was erased stays in what was answered."""

    async def test_all_of_a_user_takes_responses_and_threads_along(self, ledger: Ledger) -> None:
        await fill(ledger)
        receipt = await ledger.erase(Scope("ann"), ErasureRequest(Target.USER), by=BY)
        counts = receipt.stores[0].counts
        assert (counts["responses"], counts["threads"], counts["items"]) == (2, 2, 2)
        assert await left(ledger) == {3}

    async def test_a_session_and_a_project_take_theirs_along(self, ledger: Ledger) -> None:
        await fill(ledger)
        receipt = await ledger.erase(OTHER, ErasureRequest(Target.SESSION), by=BY)
        counts = receipt.stores[0].counts
        assert (counts["responses"], counts["threads"], counts["items"]) == (1, 1, 1)
        assert await left(ledger) == {1, 3}
        await ledger.erase(Scope("ann", "p"), ErasureRequest(Target.PROJECT), by=BY)
        assert await left(ledger) == {3}

    async def test_a_turn_takes_along_what_holds_its_words_and_the_chain_goes_on(self, ledger: Ledger) -> None:
        turns = await say(ledger, ANN, "tea", "milk", "water")
        await ledger.save_thread(ANN, thread())
        for n, each in enumerate(turns):
            before = f"resp_{n - 1}" if n else ""
            await keep(ledger, response(f"resp_{n}", previous_id=before, root_id="resp_0", names=(each.id,)))
            await ledger.add_items(ANN, items(f"msg_{n}", names=(each.id,)))
        receipt = await ledger.erase(Scope("ann"), ErasureRequest(Target.TURN, turns[1].id), by=BY)
        counts = receipt.stores[0].counts
        assert (counts["responses"], counts["items"]) == (1, 1)
        assert await chain_of(ledger, "resp_2") == ["resp_0", "resp_2"]
        assert await ids_in(ledger) == ["msg_0", "msg_2"]

    async def test_what_was_begun_before_an_erasure_is_not_kept_after_it(self, ledger: Ledger) -> None:
        await say(ledger, ANN, "tea")
        epoch = (await ledger.revision("ann")).epoch
        started = response(epoch=epoch)
        await ledger.erase(Scope("ann"), ErasureRequest(Target.USER), by=BY)
        with pytest.raises(Conflict):
            await keep(ledger, started)
        assert await ledger.users() == []
        after = response(epoch=(await ledger.revision("ann")).epoch)
        await keep(ledger, after)
        assert await chain_of(ledger, "resp_1") == ["resp_1"]

    async def test_an_erasure_of_long_ago_or_of_another_keeps_nothing_out(self, ledger: Ledger) -> None:
        await fill(ledger)
        await ledger.erase(Scope("bob"), ErasureRequest(Target.USER), by=BY)
        await keep(ledger, response("resp_4"))
        await ledger.erase(OTHER, ErasureRequest(Target.SESSION), by=BY)
        late = response("resp_5", created_at=now() + timedelta(hours=1))
        await keep(ledger, late)
        assert await chain_of(ledger, "resp_5") == ["resp_5"]

    async def test_a_user_with_only_responses_is_listed_and_can_be_erased(self, ledger: Ledger) -> None:
        await keep(ledger, response())
        await ledger.erase(OTHER, ErasureRequest(Target.SESSION), by=BY)
        assert await ledger.users() == ["ann"]
        assert await chain_of(ledger, "resp_1") == ["resp_1"]
        await ledger.erase(Scope("ann"), ErasureRequest(Target.USER), by=BY)
        assert await ledger.users() == []
        with pytest.raises(NotFound):
            await ledger.response(ANN, "resp_1")
