"""Erasing reaches responses and threads: a user's, a project's, a session's, and what holds words of a turn."""

from __future__ import annotations

from datetime import timedelta

import pytest

from recollect.errors import Conflict, NotFound
from recollect.ledger.protocol import Ledger
from recollect.model.erase import ErasureRequest, Target
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.testing.suite_responses import ANN, BOB, chain_of, ids_in, items, keep, response, thread
from recollect.testing.suite_samples import BY, say

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


class ResponseEraseSuite:
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

    async def test_who_has_only_responses_is_known_and_can_be_erased(self, ledger: Ledger) -> None:
        await keep(ledger, response())
        await ledger.erase(OTHER, ErasureRequest(Target.SESSION), by=BY)
        assert await ledger.users() == ["ann"]
        assert await chain_of(ledger, "resp_1") == ["resp_1"]
        await ledger.erase(Scope("ann"), ErasureRequest(Target.USER), by=BY)
        assert await ledger.users() == []
        with pytest.raises(NotFound):
            await ledger.response(ANN, "resp_1")
