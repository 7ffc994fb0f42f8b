"""What held at a moment is told as it was then: by search and recall, in lists, and one by one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from recollect import Memory
from recollect.config.settings import Settings
from recollect.errors import NotFound
from recollect.testing.fake_embedder import FakeEmbedder
from tests.support.api_server import add, contents, problem, served


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(settings=Settings(home=tmp_path, learn="off"), embedder=FakeEmbedder(32)) as memory:
        yield memory


def moment() -> datetime:
    """A moment that nothing happens at."""
    time.sleep(0.002)
    at = datetime.now(UTC)
    time.sleep(0.002)
    return at


def search_contents(memory: Memory, query: str, at: datetime | None) -> list[str]:
    return [hit.memory for hit in memory.search(query, user_id="a", as_of=at, min_score=0.3)]


def listed(memory: Memory, at: datetime | None, **more: object) -> set[str]:
    return {record.memory for record in memory.get_all(user_id="a", as_of=at, **more)}  # type: ignore[arg-type]


def test_what_was_changed_since_is_told_as_it_was(memory: Memory) -> None:
    rent = memory.add("Rent is 900 euros", user_id="a")
    memory.add("Likes tea", user_id="a")
    first = moment()
    memory.update(rent.id, "Rent is 1100 euros", user_id="a")
    second = moment()
    memory.update(rent.id, "Rent is 1300 euros", user_id="a")
    for at, amount in ((first, 900), (second, 1100), (None, 1300), (moment(), 1300)):
        assert search_contents(memory, "rent euros", at) == [f"Rent is {amount} euros"]
        assert listed(memory, at) == {f"Rent is {amount} euros", "Likes tea"}
        stored = memory.get(rent.id, user_id="a", as_of=at)
        assert stored.memory == f"Rent is {amount} euros"
        assert stored.version == {900: 1, 1100: 2, 1300: 3}[amount]
        report = memory.recall("How much is the rent in euros?", user_id="a", as_of=at, min_score=0.3)
        assert f"{amount} euros" in report.context.text
    assert "Rent is 1300 euros" not in search_contents(memory, "1300", first)


def test_what_was_forgotten_since_held_until_then_and_what_came_back_did_not_hold_before(memory: Memory) -> None:
    tea = memory.add("Likes tea", user_id="a")
    active = moment()
    memory.delete(tea.id, user_id="a")
    away = moment()
    memory.restore(tea.id, user_id="a")
    back = moment()
    memory.undo(user_id="a")
    for at, stored in ((active, ["Likes tea"]), (away, []), (back, ["Likes tea"]), (None, [])):
        assert search_contents(memory, "likes tea", at) == stored
        assert listed(memory, at) == set(stored)
    assert memory.get(tea.id, user_id="a", as_of=away).status == "forgotten"
    assert memory.get(tea.id, user_id="a", as_of=active).status == "active"


def test_what_is_erased_held_at_no_moment(memory: Memory) -> None:
    tea = memory.add("Likes tea", user_id="a")
    at = moment()
    memory.update(tea.id, "Likes milk", user_id="a")
    memory.erasure.erase(user_id="a", memory_id=tea.id)
    assert search_contents(memory, "likes tea milk", at) == []
    assert listed(memory, at) == set()
    with pytest.raises(NotFound):
        memory.get(tea.id, user_id="a", as_of=at)


def test_what_was_not_there_yet_is_not_told(memory: Memory) -> None:
    before = moment()
    tea = memory.add("Likes tea", user_id="a")
    memory.update(tea.id, "Likes milk", user_id="a")
    assert search_contents(memory, "likes tea milk", before) == []
    assert listed(memory, before) == set()
    with pytest.raises(NotFound):
        memory.get(tea.id, user_id="a", as_of=before)


def test_what_is_known_of_times_counts_as_it_is_known_today(memory: Memory) -> None:
    memory.add(user_id="a", key="city", value="Oslo")
    at = moment()
    # Told later, of a time before: Oslo had ended by then.
    memory.add(user_id="a", key="city", value="Rome", valid_from=at - timedelta(hours=1))
    assert search_contents(memory, "city", at) == ["city: Rome"]
    assert listed(memory, at) == {"city: Rome"}


def test_a_keyed_fact_is_always_given_as_it_was(memory: Memory) -> None:
    fact = memory.add(user_id="a", key="city", value="Oslo", importance=0.9)
    at = moment()
    memory.update(fact.id, user_id="a", value="Rome")
    for request, city in ((at, "Oslo"), (None, "Rome")):
        text = memory.recall("What did I plan for my holidays?", user_id="a", as_of=request).context.text
        assert f"city: {city}" in text


def test_what_was_approved_since_was_not_used_before(memory: Memory) -> None:
    waits = memory.acting_as("bot").reviews.propose("Likes tea", user_id="a")
    at = moment()
    memory.reviews.approve(waits.id, user_id="a", by="dana")
    assert search_contents(memory, "likes tea", None) == ["Likes tea"]
    assert search_contents(memory, "likes tea", at) == []
    assert listed(memory, at) == set()


def test_filters_and_scopes_count_as_they_were(memory: Memory) -> None:
    one = memory.add("Likes tea", user_id="a", tags=["hot"])
    memory.add("Likes milk", user_id="a", project_id="p")
    memory.add("Likes wine", user_id="b", tags=["hot"])
    at = moment()
    memory.update(one.id, user_id="a", tags=["cold"])
    for request, tag in ((at, "hot"), (None, "cold")):
        other = {"hot": "cold", "cold": "hot"}[tag]
        assert listed(memory, request, filters={"tags": tag}) == {"Likes tea"}
        assert listed(memory, request, filters={"tags": other}) == set()
        hits = memory.search("likes", user_id="a", as_of=request, filters={"tags": tag}, min_score=0)
        assert [hit.memory for hit in hits] == ["Likes tea"]
    assert listed(memory, at, project_id="p") == {"Likes milk"}


def test_pages_of_the_past_follow_one_another(memory: Memory) -> None:
    ids = [memory.add(f"Fact {n}", user_id="a").id for n in range(25)]
    at = moment()
    for n in range(0, 25, 3):
        memory.delete(ids[n], user_id="a")
    memory.add("Later", user_id="a")
    pages: list[str] = []
    cursor = None
    while True:
        page = memory.get_all(user_id="a", as_of=at, limit=10, cursor=cursor)
        pages += [record.memory for record in page]
        if (cursor := page.cursor) is None:
            break
    assert pages == [f"Fact {n}" for n in reversed(range(25))]
    # What held then was active.
    assert not list(memory.get_all(user_id="a", as_of=at, statuses=["forgotten"]))


def test_the_past_is_told_over_http(tmp_path: Path) -> None:
    with served(tmp_path, learn="off") as api:
        stored, gone = add(api, "Rent is 900 euros"), add(api, "Likes tea")
        at = moment().isoformat()
        api.patch(f"/memories/{stored['id']}", json={"content": "Rent is 1100 euros"})
        api.delete(f"/memories/{gone['id']}")
        assert contents(api.post("/search", json={"query": "What is the rent?", "as_of": at}))[0] == stored["memory"]
        report = api.post("/recall", json={"messages": "How much is my rent?", "as_of": at}).json()
        assert "900" in report["context"]["text"]
        both = {"Rent is 900 euros", "Likes tea"}
        assert set(contents(api.get("/memories", params={"as_of": at}))) == both
        assert set(contents(api.post("/list", json={"as_of": at}))) == both
        one = api.get(f"/memories/{stored['id']}", params={"as_of": at})
        assert (one.json()["memory"], one.headers["etag"]) == ("Rent is 900 euros", '"1"')
        assert contents(api.get("/memories")) == ["Rent is 1100 euros"]
        early = api.get(f"/memories/{stored['id']}", params={"as_of": "2001-01-01T00:00:00Z"})
        assert problem(early)[:2] == (404, "NotFound")
        request = {"as_of": at, "status": "forgotten"}
        assert contents(api.get("/memories", params=request)) == []
        assert problem(api.get("/memories", params={"as_of": "then"}))[:2] == (400, "InvalidInput")
        with httpx.Client(base_url=api.base_url, headers={"X-Memory-User": "zoe"}, timeout=60) as zoe:
            assert contents(zoe.get("/memories", params={"as_of": at})) == []
            assert problem(zoe.get(f"/memories/{stored['id']}", params={"as_of": at}))[:2] == (404, "NotFound")
