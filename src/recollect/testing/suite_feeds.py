"""What indexes with a store of their own are fed from, how far each is, and that one feeds at a time."""

from __future__ import annotations

from recollect.ledger.feeds import FeedPosition, Revision
from recollect.ledger.protocol import Ledger
from recollect.model.change import Add, Forget, Update
from recollect.model.erase import ErasureRequest, Target
from recollect.testing.suite_samples import ANN, BOB, BY, MODEL, OTHER_MODEL, add, change, direction, memory, row_of

INDEX, OTHER = "milvus one", "milvus two"


class FeedSuite:
    """Feeding an index."""

    async def test_rows_are_counted_up_to_what_one_wants_to_know(self, ledger: Ledger) -> None:
        assert await ledger.row_count("ann", max_count=10) == 0
        await add(ledger, memory("one"), memory("two"), memory("three"))
        await add(ledger, memory(scope=BOB))
        revision = await ledger.revision("ann")
        await add(ledger, memory("four"))
        assert await ledger.row_count("ann", max_count=10) == 4
        assert await ledger.row_count("ann", max_count=2) == 2
        assert await ledger.row_count("ann", max_count=10, after=revision.number) == 1

    async def test_rows_without_vectors_still_tell_whether_there_is_one(self, ledger: Ledger) -> None:
        await change(ledger, Add(memory("one"), direction(1)), Add(memory("two")))
        whole = await ledger.index_rows("ann", model=MODEL, after=0)
        light = await ledger.index_rows("ann", model=MODEL, after=0, vectors=False)
        assert [(row.row, row.vector is None) for row in light[1]] == [
            (row.row, row.vector is None) for row in whole[1]
        ]
        assert {row.vector for row in light[1]} == {None, b""}
        assert light[0] == whole[0]

    async def test_vectors_are_those_of_the_user_and_the_model(self, ledger: Ledger) -> None:
        await change(ledger, Add(memory("one"), direction(1)), Add(memory("two")))
        await change(ledger, Add(memory("hers", scope=BOB), direction(2)), scope=BOB)
        rows = {row.row: row.vector for row in (await ledger.index_rows("ann", model=MODEL, after=0))[1]}
        (hers,) = (row.row for row in (await ledger.index_rows("bob", model=MODEL, after=0))[1])
        results = await ledger.vectors_of("ann", [*rows, hers, 10**9], model=MODEL)
        assert results == {row: vector for row, vector in rows.items() if vector is not None}
        assert len(results) == 1
        assert await ledger.vectors_of("ann", list(rows), model=OTHER_MODEL) == {}
        assert await ledger.vectors_of("ann", [], model=MODEL) == {}

    async def test_changed_rows_come_page_by_page_in_the_order_of_their_changes(self, ledger: Ledger) -> None:
        records = [memory(f"number {n}") for n in range(5)]
        await change(ledger, *(Add(record, direction(n)) for n, record in enumerate(records)))
        rows = [await row_of(ledger, record) for record in records]
        await change(ledger, Update(records[1].id, {"importance": 0.9}), Forget(records[3].id))
        seen, after = [], (0, 0)
        while page := await ledger.changed_rows("ann", model=MODEL, after=after, limit=2):
            seen += page
            after = (page[-1].revision, page[-1].row.row)
        assert [each.row.row for each in seen] == [rows[0], rows[2], rows[4], rows[1], rows[3]]
        assert [each.row.status for each in seen][-1] == "forgotten"
        assert seen[-1].revision == (await ledger.revision("ann")).number
        assert all(each.row.vector for each in seen[:3])
        assert await ledger.changed_rows("bob", model=MODEL, after=(0, 0), limit=2) == []

    async def test_who_is_behind_is_told_until_it_is_noted_that_they_are_not(self, ledger: Ledger) -> None:
        await add(ledger, memory())
        await add(ledger, memory(scope=BOB))
        assert [each.user for each in await ledger.lagging_users(INDEX, limit=10)] == ["ann", "bob"]
        assert [each.user for each in await ledger.lagging_users(INDEX, limit=1)] == ["ann"]
        assert [each.user for each in await ledger.lagging_users(INDEX, limit=10, after="ann")] == ["bob"]
        ann = await ledger.revision("ann")
        assert await ledger.lease_feed(INDEX, feeder="one", lease_s=60)
        assert await ledger.save_feed_positions(INDEX, {"ann": ann}, feeder="one")
        assert (await ledger.feed_position("ann", index=INDEX)).revision == ann
        assert (
            await ledger.feed_position("ann", index=OTHER)
            == await ledger.feed_position("bob", index=INDEX)
            == FeedPosition()
        )
        assert [each.user for each in await ledger.lagging_users(INDEX, limit=10)] == ["bob"]
        assert len(await ledger.lagging_users(OTHER, limit=10)) == 2
        await add(ledger, memory("more"))
        [first, _] = await ledger.lagging_users(INDEX, limit=10)
        assert (first.user, first.indexed, first.current) == ("ann", ann, await ledger.revision("ann"))
        await ledger.reset_feed(INDEX)
        assert await ledger.feed_position("ann", index=INDEX) == FeedPosition()

    async def test_an_erasure_leaves_an_index_behind_even_where_nothing_else_changed(self, ledger: Ledger) -> None:
        one, _ = await add(ledger, memory("one"), memory("two"))
        await ledger.lease_feed(INDEX, feeder="one", lease_s=60)
        await ledger.save_feed_positions(INDEX, {"ann": await ledger.revision("ann")}, feeder="one")
        assert await ledger.lagging_users(INDEX, limit=10) == []
        await ledger.erase(ANN, ErasureRequest(Target.MEMORY, one.id), by=BY)
        [lagging] = await ledger.lagging_users(INDEX, limit=10)
        assert lagging.indexed.epoch != lagging.current.epoch

    async def test_nothing_is_kept_of_how_far_an_index_was_with_a_user_who_is_gone(self, ledger: Ledger) -> None:
        await add(ledger, memory())
        revision = await ledger.revision("ann")
        await ledger.lease_feed(INDEX, feeder="one", lease_s=60)
        await ledger.save_feed_positions(INDEX, {"ann": revision}, feeder="one")
        await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
        assert await ledger.feed_position("ann", index=INDEX) == FeedPosition()
        # One who was feeding meanwhile brings nobody back.
        assert await ledger.save_feed_positions(INDEX, {"ann": revision}, feeder="one")
        assert await ledger.feed_position("ann", index=INDEX) == FeedPosition()
        assert await ledger.users() == []

    async def test_one_feeds_at_a_time(self, ledger: Ledger) -> None:
        await add(ledger, memory())
        assert await ledger.lease_feed(INDEX, feeder="one", lease_s=60)
        assert await ledger.lease_feed(INDEX, feeder="one", lease_s=60)
        assert not await ledger.lease_feed(INDEX, feeder="two", lease_s=60)
        assert await ledger.lease_feed(OTHER, feeder="two", lease_s=60)
        assert not await ledger.save_feed_positions(INDEX, {"ann": Revision(1)}, feeder="two")
        assert await ledger.feed_position("ann", index=INDEX) == FeedPosition()

    async def test_a_lease_that_ran_out_can_be_had_by_another_who_then_has_the_say(self, ledger: Ledger) -> None:
        await add(ledger, memory())
        assert await ledger.lease_feed(INDEX, feeder="one", lease_s=-1)
        assert await ledger.lease_feed(INDEX, feeder="two", lease_s=60)
        assert not await ledger.lease_feed(INDEX, feeder="one", lease_s=60)
        assert not await ledger.save_feed_positions(INDEX, {"ann": Revision(1)}, feeder="one")
        assert await ledger.save_feed_positions(INDEX, {"ann": Revision(1)}, feeder="two")
        assert await ledger.lease_feed(INDEX, feeder="three", lease_s=60, take=True)
        assert not await ledger.lease_feed(INDEX, feeder="two", lease_s=60)

    async def test_what_a_search_sees_goes_on_behind_what_was_noted_even_where_writes_never_pause(
        self, ledger: Ledger
    ) -> None:
        await add(ledger, memory())
        await ledger.lease_feed(INDEX, feeder="one", lease_s=60)
        second, fed = 1_000_000, []
        for number in range(1, 6):
            await ledger.save_feed_positions(INDEX, {"ann": Revision(number)}, feeder="one", settles_s=10)
            fed.append(await ledger.feed_position("ann", index=INDEX))
        first, last = fed[0], fed[-1]
        assert last.revision == Revision(5)
        assert last.visible_revision(10, at=last.noted_at + second) == 0
        assert last.visible_revision(10, at=first.noted_at + 11 * second) in (1, 5)
        assert last.visible_revision(10, at=last.noted_at + 11 * second) == 5
        # As it would be noted much later, with another note just before.
        busy = last.advanced_to(Revision(6), 10, at=last.noted_at + 11 * second)
        assert (
            busy.visible_revision(10, at=busy.noted_at),
            busy.visible_revision(10, at=busy.noted_at + 11 * second),
        ) == (5, 6)
        busier = busy.advanced_to(Revision(7), 10, at=busy.noted_at + 9 * second)
        assert busier.visible_revision(10, at=busy.noted_at + 11 * second) == 6
        assert (
            busier.advanced_to(Revision(1), 10, at=busier.noted_at).visible_revision(10, at=busier.noted_at + second)
            == 0
        )
