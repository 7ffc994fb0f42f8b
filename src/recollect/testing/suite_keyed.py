"""Facts with a key that matter are given whatever is asked: the most important first, and only what may be seen."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from recollect.errors import Conflict, InvalidInput
from recollect.ledger.protocol import Ledger
from recollect.model.change import Add, Forget
from recollect.model.filters import parse_filter
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.testing.suite_samples import ANN, BOB, NOON, add, change, memory

DAY = timedelta(days=1)


class KeyedSuite:
    """Keyed facts."""

    async def test_keyed_facts_come_the_most_important_first_and_the_oldest_among_equals(
        self, ledger: Ledger
    ) -> None:
        numbers = {"a": 0.5, "b": 0.9, "c": 0.5, "d": 0.49, "e": 1.0}
        await add(ledger, *(memory(key, key=key, importance=number) for key, number in numbers.items()))
        await add(ledger, memory("without a key", importance=1.0))
        assert await keyed(ledger) == ["e", "b", "a", "c"]
        assert await keyed(ledger, limit=2) == ["e", "b"]
        assert await keyed(ledger, least=0.0) == ["e", "b", "a", "c", "d"]
        assert await keyed(ledger, least=1.0) == ["e"]

    async def test_keyed_facts_are_those_the_scope_can_see(self, ledger: Ledger) -> None:
        here, session = Scope("ann", "p"), Scope("ann", "p", "s")
        await add(ledger, memory("own", key="k"))
        await add(ledger, memory("project", key="k", scope=here, level=Level.PROJECT))
        await add(ledger, memory("session", key="k", scope=session, level=Level.SESSION))
        await add(ledger, memory("bob's", key="k", scope=BOB))
        assert await keyed(ledger) == ["own"]
        assert await keyed(ledger, here) == ["own", "project"]
        assert await keyed(ledger, session) == ["own", "project", "session"]
        assert await keyed(ledger, Scope("nobody", "p", "s")) == []

    async def test_keyed_facts_pass_the_filter(self, ledger: Ledger) -> None:
        await add(ledger, memory("work", key="a", tags=("work",)), memory("home", key="b", tags=("home",)))
        assert await keyed(ledger, filter={"tags": "home"}) == ["home"]
        assert await keyed(ledger, filter={"key": "a"}, limit=1) == ["work"]

    async def test_only_the_value_that_holds_is_given(self, ledger: Ledger) -> None:
        for n, city in enumerate(("Oslo", "Rome", "Bern")):
            await add(ledger, memory(city, key="city", valid_from=NOON + n * DAY))
        assert await keyed(ledger) == ["Bern"]
        assert await keyed(ledger, as_of=NOON - DAY) == []
        assert await keyed(ledger, as_of=NOON) == ["Oslo"]
        assert await keyed(ledger, as_of=NOON + DAY) == ["Rome"]

    async def test_what_is_forgotten_waits_or_has_expired_is_not_given(self, ledger: Ledger) -> None:
        (gone,) = await add(ledger, memory("gone", key="gone"))
        await change(ledger, Forget(gone.id))
        await add(ledger, memory("waits", key="waits", status=Status.REVIEW))
        await add(ledger, memory("expired", key="expired", expires_at=NOON + DAY))
        await add(ledger, memory("holds", key="holds", expires_at=now() + DAY))
        assert await keyed(ledger) == ["holds"]
        assert await keyed(ledger, as_of=NOON) == ["expired", "holds"]

    async def test_whoever_says_the_same_or_holds_the_key_is_given(self, ledger: Ledger) -> None:
        here = Scope("ann", "p")
        (tea,) = await add(ledger, memory("tea"))
        (city,) = await add(ledger, memory("Oslo", key="city"))
        await add(ledger, memory("bread", scope=here, level=Level.PROJECT))
        await add(ledger, memory("tea", scope=BOB))
        (gone,) = await add(ledger, memory("milk"))
        await change(ledger, Forget(gone.id))
        request = [
            memory("tea"),
            memory("Rome", key="city"),
            memory("bread"),
            memory("milk"),
            memory("Rome", key="town"),
        ]
        results = await ledger.find_conflicting(ANN, request)
        assert {each.id for each in results} == {tea.id, city.id}
        assert await ledger.find_conflicting(Scope("nobody"), [memory("tea", scope=Scope("nobody"))]) == []

    async def test_what_must_be_the_first_of_its_key_is_refused_while_another_holds_it(self, ledger: Ledger) -> None:
        [stored] = (await change(ledger, Add(file("one"), first=True))).outcomes
        with pytest.raises(Conflict):
            await change(ledger, Add(file("two"), first=True))
        with pytest.raises(Conflict):
            await change(ledger, Add(file("one"), first=True))
        await change(ledger, Forget(stored.id))
        await change(ledger, Add(file("two"), first=True))
        assert await keyed(ledger) == ["two"]

    async def test_two_files_may_say_the_same_under_paths_that_differ_in_case_alone(self, ledger: Ledger) -> None:
        paths = ("/memories/a", "/memories/A", "/memories/a b", "/memories/a  b")
        for path in paths:
            await change(ledger, Add(file("same", path), first=True))
        assert await keyed(ledger) == ["same"] * len(paths)

    async def test_a_file_that_comes_again_under_its_path_takes_the_place_of_the_other(self, ledger: Ledger) -> None:
        await add(ledger, file("old words"), file("new words"))
        assert await keyed(ledger) == ["new words"]

    async def test_a_limit_of_nothing_is_refused(self, ledger: Ledger) -> None:
        with pytest.raises(InvalidInput):
            await keyed(ledger, limit=0)


def file(text: str, path: str = "/memories/notes.md") -> MemoryRecord:
    """A file, which is told by its path alone."""
    return memory(text, key=path, category=Category.FILE)


async def keyed(
    ledger: Ledger,
    scope: Scope = ANN,
    *,
    filter: Any = None,
    least: float = 0.5,
    limit: int = 20,
    as_of: datetime | None = None,
) -> list[str]:
    """The words of the keyed facts."""
    results = await ledger.keyed_facts(scope, parse_filter(filter), min_importance=least, limit=limit, as_of=as_of)
    return [record.content for record in results]
