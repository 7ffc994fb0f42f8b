"""As of a moment, a ledger answers from what held then, whatever has taken its place since."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import product
from typing import Any

import pytest

from recollect.ledger.protocol import Ledger
from recollect.model.change import Add, Forget, Restore, Supersede, Update
from recollect.model.filters import parse_filter
from recollect.model.memory import Status
from recollect.model.query import EVERYTHING
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.model.validity import valid_at
from recollect.testing.suite_samples import (
    ANN,
    BOB,
    BY,
    MODEL,
    NOON,
    add,
    change,
    direction,
    last_entry,
    memory,
    now_of,
    row_of,
    say,
    turn,
)

DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)


async def contents_as_of(
    ledger: Ledger, as_of: datetime | None, *, scope: Scope = ANN, filter: Any = None
) -> set[str]:
    """The words of all that held then; matching and fetching must agree on them."""
    parsed = parse_filter(filter)
    _, rows = await ledger.index_rows(scope.user, model=MODEL, after=0)
    fetched = await ledger.fetch(scope, [row.row for row in rows], filter=parsed, as_of=as_of)
    assert {each.row for each in fetched} == set(await ledger.matching(scope, parsed, as_of=as_of))
    return {each.record.content for each in fetched}


class AsOfSuite:
    """What held at a moment."""

    async def test_each_value_of_a_key_is_found_in_its_own_time(self, ledger: Ledger) -> None:
        for n, city in enumerate(("Oslo", "Rome", "Bern")):
            await add(ledger, memory(city, key="city", valid_from=NOON + n * DAY))
        assert await contents_as_of(ledger, NOON - TICK) == set()
        assert await contents_as_of(ledger, NOON) == await contents_as_of(ledger, NOON + DAY - TICK) == {"Oslo"}
        assert (
            await contents_as_of(ledger, NOON + DAY)
            == await contents_as_of(ledger, NOON + 2 * DAY - TICK)
            == {"Rome"}
        )
        assert (
            await contents_as_of(ledger, NOON + 2 * DAY) == await contents_as_of(ledger, NOON + 99 * DAY) == {"Bern"}
        )
        assert await contents_as_of(ledger, None) == {"Bern"}

    async def test_a_value_superseded_without_a_date_holds_until_it_was(self, ledger: Ledger) -> None:
        (old,) = await add(ledger, memory("Paris", key="city", created_at=now() - DAY))
        fresh = memory("Rome", key="city", created_at=now())
        await change(ledger, Supersede(old.id, fresh))
        ended = (await now_of(ledger, old)).valid_to
        assert ended is not None
        assert "Paris" in await contents_as_of(ledger, ended - TICK)
        assert await contents_as_of(ledger, ended) == {"Rome"}

    async def test_superseding_does_not_prolong_what_had_ended_before(self, ledger: Ledger) -> None:
        (old,) = await add(ledger, memory("has a lease in Paris", valid_to=NOON + DAY))
        await change(ledger, Supersede(old.id, memory("has a lease in Rome", valid_from=NOON + 9 * DAY)))
        assert (await now_of(ledger, old)).valid_to == NOON + DAY
        assert await contents_as_of(ledger, NOON + 2 * DAY) == set()

    async def test_superseding_cuts_short_what_was_to_hold_longer(self, ledger: Ledger) -> None:
        (old,) = await add(ledger, memory("has a lease in Paris", valid_to=NOON + 99 * DAY))
        await change(ledger, Supersede(old.id, memory("has a lease in Rome", valid_from=NOON + 9 * DAY)))
        assert await contents_as_of(ledger, NOON + 9 * DAY - TICK) == {"has a lease in Paris"}
        assert await contents_as_of(ledger, NOON + 9 * DAY) == {"has a lease in Rome"}

    async def test_every_way_to_stand_in_time_is_read_alike(self, ledger: Ledger) -> None:
        times = (None, NOON - DAY, NOON + DAY)
        fields = product(Status, (NOON, NOON + 2 * DAY), times, times, times, (NOON, NOON + DAY))
        names = ("status", "created_at", "valid_from", "valid_to", "expires_at", "updated_at")
        records = [
            memory(f"memory {n}", **dict(zip(names, each, strict=True)), occurred_at=NOON - 99 * DAY)
            for n, each in enumerate(fields)
        ]
        await add(ledger, *records)
        moments = [NOON + n * DAY + tick for n in (-1, 0, 1, 2) for tick in (-TICK, timedelta(0), TICK)]
        for moment in moments:
            expected = {record.content for record in records if valid_at(record, moment)}
            assert await contents_as_of(ledger, moment) == expected, moment
        assert await contents_as_of(ledger, moments[-1]) != await contents_as_of(ledger, moments[0])

    async def test_a_memory_without_dates_holds_from_when_it_was_made(self, ledger: Ledger) -> None:
        await add(ledger, memory("moved in 2019", occurred_at=NOON - 999 * DAY))
        assert await contents_as_of(ledger, NOON - TICK) == set()
        assert await contents_as_of(ledger, NOON) == {"moved in 2019"}

    async def test_an_end_that_was_given_counts_for_an_active_memory(self, ledger: Ledger) -> None:
        await add(ledger, memory("on leave", valid_from=NOON, valid_to=NOON + DAY))
        assert await contents_as_of(ledger, NOON) == {"on leave"}
        assert await contents_as_of(ledger, NOON + DAY) == set()
        assert await contents_as_of(ledger, None) == set()

    async def test_now_is_a_moment_like_any_other(self, ledger: Ledger) -> None:
        long_ago, far_off = NOON - 3650 * DAY, NOON + 36500 * DAY
        await add(
            ledger,
            memory("always"),
            memory("begun", valid_from=long_ago),
            memory("to come", valid_from=far_off),
            memory("over", valid_from=long_ago, valid_to=NOON - 3600 * DAY),
            memory("lasting", valid_to=far_off),
            memory("expired", expires_at=long_ago),
            memory("expiring", expires_at=far_off),
        )
        assert await contents_as_of(ledger, None) == {"always", "begun", "lasting", "expiring"}

    async def test_what_expired_since_held_before(self, ledger: Ledger) -> None:
        await add(ledger, memory("parking ticket", expires_at=NOON + DAY))
        assert await contents_as_of(ledger, NOON + DAY - TICK) == {"parking ticket"}
        assert await contents_as_of(ledger, NOON + DAY) == set()

    @pytest.mark.parametrize("status", [Status.FORGOTTEN, Status.REVIEW])
    async def test_what_was_forgotten_or_never_accepted_held_at_no_moment(
        self, ledger: Ledger, status: Status
    ) -> None:
        await add(ledger, memory("tea", status=status))
        assert await contents_as_of(ledger, NOON + DAY) == set()

    async def test_what_is_forgotten_is_gone_from_the_past_as_well(self, ledger: Ledger) -> None:
        old, fresh = memory("Paris", key="city"), memory("Rome", key="city", valid_from=NOON + DAY)
        await change(ledger, Add(old), Add(fresh))
        await change(ledger, Forget(old.id))
        assert await contents_as_of(ledger, NOON) == set()
        assert await contents_as_of(ledger, NOON + DAY) == {"Rome"}

    async def test_a_superseding_that_was_undone_never_was(self, ledger: Ledger) -> None:
        old, fresh = memory("Paris", key="city"), memory("Rome", key="city", valid_from=NOON + DAY)
        await change(ledger, Add(old))
        await change(ledger, Supersede(old.id, fresh))
        await ledger.undo(ANN, (await last_entry(ledger)).id, by=BY)
        assert await contents_as_of(ledger, NOON + 2 * DAY) == {"Paris"}

    async def test_a_restored_value_holds_on(self, ledger: Ledger) -> None:
        old, fresh = memory("Paris", key="city"), memory("Rome", key="city", valid_from=NOON + DAY)
        await change(ledger, Add(old), Add(fresh))
        await change(ledger, Forget(fresh.id), Restore(old.id))
        assert await contents_as_of(ledger, NOON + 2 * DAY) == {"Paris"}

    async def test_a_status_set_by_hand_ends_a_memory_when_it_was_set(self, ledger: Ledger) -> None:
        (old,) = await add(ledger, memory("Paris"))
        await change(ledger, Update(old.id, {"status": "superseded"}))
        at = (await now_of(ledger, old)).updated_at
        assert await contents_as_of(ledger, at - TICK) == {"Paris"}
        assert await contents_as_of(ledger, at) == set()

    async def test_turns_hold_from_when_they_were_said(self, ledger: Ledger) -> None:
        session = Scope("ann", "", "s")
        later = turn("and later", said_at=NOON + DAY)
        await say(ledger, session, "at noon")
        await ledger.append(session, [later], vectors=[None], by=BY)
        assert await contents_as_of(ledger, NOON, scope=session) == {"at noon"}
        assert await contents_as_of(ledger, NOON + DAY, scope=session) == {"at noon", "and later"}

    async def test_scope_and_filter_count_in_the_past_too(self, ledger: Ledger) -> None:
        project = Scope("ann", "p")
        await add(ledger, memory("tea", tags=("hot",)), memory("milk", scope=project, level=Level.PROJECT))
        await add(ledger, memory("coffee", scope=BOB))
        assert await contents_as_of(ledger, NOON) == {"tea"}
        assert await contents_as_of(ledger, NOON, scope=project) == {"tea", "milk"}
        assert await contents_as_of(ledger, NOON, scope=project, filter={"tags": "hot"}) == {"tea"}
        assert await contents_as_of(ledger, NOON, filter={"not": {"tags": "hot"}}) == set()

    async def test_a_superseded_memory_keeps_its_vector_and_its_words(self, ledger: Ledger) -> None:
        old, fresh = memory("lives in Paris", key="city"), memory("lives in Rome", key="city", valid_from=NOON + DAY)
        await change(ledger, Add(old, direction(1)))
        row = await row_of(ledger, old)
        await change(ledger, Supersede(old.id, fresh, vector=direction(2)))
        _, rows = await ledger.index_rows("ann", model=MODEL, after=0)
        assert {each.row: each.vector for each in rows}[row] == direction(1).astype("<f2").tobytes()
        assert (await ledger.lexical(ANN, "Paris")).rows.tolist() == [row]
        await ledger.rebuild_terms()
        assert (await ledger.lexical(ANN, "Paris")).rows.tolist() == [row]
        results = await ledger.fetch(ANN, [row], filter=EVERYTHING, as_of=NOON)
        assert [each.record for each in results] == [await now_of(ledger, old)]
        assert await ledger.fetch(ANN, [row], filter=EVERYTHING) == []

    async def test_what_was_changed_since_a_moment_is_told_with_all_its_lines(self, ledger: Ledger) -> None:
        one, two, _ = await add(ledger, memory("one"), memory("two"), memory("three"))
        await add(ledger, memory("bob's", id="bobs", scope=BOB))
        before = now()
        await change(ledger, Update(one.id, {"content": "one more"}))
        middle = (await last_entry(ledger)).at
        (late,) = await add(ledger, memory("late"))
        await change(ledger, Forget(late.id), Forget(two.id), Update(one.id, {"content": "one"}))
        lines = await ledger.changes_since("ann", before - DAY)
        assert {line.memory_id for line in lines} == {one.id, two.id, late.id}
        assert [line.id for line in lines] == sorted(line.id for line in lines)
        since = await ledger.changes_since("ann", middle)
        assert [str(line.verb) for line in since] == ["add", "forget", "forget", "update"]
        assert await ledger.changes_since("ann", now() + DAY) == await ledger.changes_since("bob", before - DAY) == []

    async def test_a_moment_of_another_zone_is_the_same_moment(self, ledger: Ledger) -> None:
        await add(ledger, memory("tea", valid_to=NOON + DAY))
        for hours in (-8, 0, 5.5, 14):
            local = (NOON + DAY).astimezone(timezone(timedelta(hours=hours)))
            assert await contents_as_of(ledger, local - TICK) == {"tea"}
            assert await contents_as_of(ledger, local) == set()
