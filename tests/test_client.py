"""The Python API with the real embedder and a SQLite file."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from recollect import AsyncMemory, Memory, Status
from recollect.config.settings import Settings
from recollect.errors import (
    Conflict,
    IdempotencyReuse,
    InvalidFilter,
    InvalidInput,
    InvalidText,
    ModelUnavailable,
    NotFound,
    StoreCorrupt,
)
from recollect.sync import Namespace
from recollect.testing.fake_embedder import FakeEmbedder


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(home=tmp_path) as memory:
        yield memory


def test_an_added_memory_is_found_by_other_words(memory: Memory) -> None:
    memory.add("The budget for the Hawaii trip is $10,000", user_id="alex")
    memory.add("Alex is allergic to peanuts", user_id="alex")
    memory.add("The dentist is on Tuesday", user_id="alex")
    hits = memory.search("How much money can I spend in Hawaii?", user_id="alex", min_score=0)
    assert hits[0].memory == "The budget for the Hawaii trip is $10,000"
    assert hits[0].scores["relevance"] > 1.2 * hits[1].scores["relevance"]


def test_scores_lie_between_0_and_1_and_fall(memory: Memory) -> None:
    for number in range(20):
        memory.add(f"Note {number} about the garden and the piano", user_id="alex")
    scores = [hit.score for hit in memory.search("piano in the garden", user_id="alex", limit=20)]
    assert len(scores) == 20
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


def test_results_have_the_fields_of_mem0(memory: Memory) -> None:
    memory.add("Likes tea", user_id="alex", metadata={"mood": "calm"})
    [hits] = memory.search("tea", user_id="alex").to_dict()["results"]
    assert hits["memory"] == "Likes tea"
    assert hits["metadata"] == {"mood": "calm"}
    assert {"id", "score", "created_at", "updated_at", "user_id"} <= set(hits)


def test_a_hit_says_why_it_was_found(memory: Memory) -> None:
    memory.add("The budget for the Hawaii trip is $10,000", user_id="alex")
    [hit] = memory.search("Hawaii budget", user_id="alex", explain=True)
    assert "hawaii" in hit.why
    assert {"relevance", "dense", "lexical", "coverage", "recency"} <= set(hit.scores)


def test_a_repeated_fact_is_stored_once(memory: Memory) -> None:
    first = memory.add("Likes green tea", user_id="alex")
    repeated = memory.add("likes  GREEN tea", user_id="alex")
    assert repeated.id == first.id
    assert not repeated.changed
    assert len(memory.get_all(user_id="alex")) == 1


def test_a_key_has_one_value_and_the_old_one_stays_in_history(memory: Memory) -> None:
    def say(value: str, confidence: float, *, correction: bool = False) -> bool:
        outcome = memory.add(
            user_id="alex", category="identity", key="name", value=value, confidence=confidence, correction=correction
        )
        return outcome.changed

    def name() -> str | None:
        [stored] = memory.get_all(user_id="alex", filters={"key": "name"})
        return stored.value

    assert say("Alex", 1.0)
    assert not say("Al", 0.6)
    assert not say("Alexander", 0.95)
    assert name() == "Alex"
    assert say("Alexander", 0.95, correction=True)
    assert name() == "Alexander"
    [old] = memory.get_all(user_id="alex", statuses=[Status.SUPERSEDED])
    assert (old.value, old.superseded_by is not None, old.valid_to is not None) == ("Alex", True, True)


def test_ten_threads_setting_one_key_leave_one_value(memory: Memory) -> None:
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda n: memory.add(user_id="a", key="colour", value=f"shade {n}"), range(10)))
    assert len(memory.get_all(user_id="a", filters={"key": "colour"})) == 1


def test_users_do_not_see_each_other(memory: Memory) -> None:
    secret = memory.add("The safe code is 4711", user_id="alex")
    memory.add("Bob likes safes", user_id="bob")
    assert [hit.memory for hit in memory.search("safe code", user_id="bob")] == ["Bob likes safes"]
    messages = set()
    for id in (secret.id, "no-such-id"):
        for call in (memory.get, memory.delete, memory.history, memory.restore):
            with pytest.raises(NotFound) as caught:
                call(id, user_id="bob")
            messages.add(str(caught.value).replace(id, "ID"))
    [message] = messages
    assert message.startswith("no memory ID for this user; ")
    assert memory.get(secret.id, user_id="alex").status is Status.ACTIVE


def test_recall_sees_the_session_its_project_and_the_user(memory: Memory) -> None:
    memory.add("note of the user", user_id="a")
    memory.add("note of project x", user_id="a", project_id="x")
    memory.add("note of session s", user_id="a", project_id="x", session_id="s", level="session")

    def seen(project: str | None = None, session: str | None = None) -> set[str]:
        hits = memory.search("note", user_id="a", project_id=project, session_id=session)
        return {hit.memory.removeprefix("note of ") for hit in hits}

    assert seen() == {"the user"}
    assert seen("x") == {"the user", "project x"}
    assert seen("x", "s") == {"the user", "project x", "session s"}
    assert seen("y", "s") == {"the user"}


MOVED = "I moved to Lisbon in May. Where should I eat?"


def test_turns_are_stored_in_order_and_can_be_searched(memory: Memory) -> None:
    messages = [
        {"role": "system", "content": "You are helpful"},
        {"role": "user", "content": MOVED, "timestamp": "2026-05-02T10:00:00Z"},
        {"role": "assistant", "content": [{"type": "text", "text": "How is it there?"}]},
        {"role": "tool", "content": "weather: sunny"},
        {"role": "user", "content": None},
    ]
    stored = memory.remember(messages, user_id="alex", session_id="s1", wait=True)
    memory.remember("I like it", user_id="alex", session_id="s1", wait=True)
    assert [turn.position for turn in stored] == [1, 2]
    turns = memory.sessions.turns(user_id="alex", session_id="s1")
    assert [turn.content for turn in turns] == [MOVED, "How is it there?", "I like it"]
    hits = {hit.memory: hit.record for hit in memory.search("Where does Alex live? Lisbon?", user_id="alex")}
    assert hits[MOVED].occurred_at == datetime(2026, 5, 2, 10, tzinfo=UTC)
    [learned] = memory.get_all(user_id="alex")
    assert (learned.memory, learned.evidence) == ("I moved to Lisbon in May", (stored[0].id,))
    assert len(memory.get_all(user_id="alex", turns=True)) == 4


def test_unstorable_characters_in_messages_are_replaced(memory: Memory) -> None:
    [turn] = memory.remember("half \ud83d and nul \0 here", user_id="alex", session_id="s")
    assert turn.content == "half \ufffd and nul \ufffd here"


def test_an_update_changes_what_is_found(memory: Memory) -> None:
    added = memory.add("Lives in Oslo", user_id="a")
    updated = memory.acting_as("python", why="moved").update(added.id, "Lives in Prague", user_id="a", importance=0.9)
    assert (updated.record.version, updated.record.importance) == (2, 0.9)
    assert memory.search("Prague", user_id="a")[0].scores["lexical"] > 0
    assert memory.search("Oslo", user_id="a")[0].scores["lexical"] == 0


def test_a_stale_update_is_a_conflict(memory: Memory) -> None:
    added = memory.add("Lives in Oslo", user_id="a")
    memory.update(added.id, "Lives in Prague", user_id="a", expected_version=1)
    with pytest.raises(Conflict, match="version 2, not 1"):
        memory.update(added.id, "Lives in Rome", user_id="a", expected_version=1)


def test_history_has_author_time_reason_and_previous_values(memory: Memory) -> None:
    added = memory.add("Lives in Oslo", user_id="a")
    memory.acting_as("carol", why="moved").update(added.id, "Lives in Prague", user_id="a")
    newest, oldest = memory.history(added.id, user_id="a")
    assert (newest.verb, newest.by.who, newest.by.why) == ("update", "carol", "moved")
    assert (newest.before, newest.after) == ({"content": "Lives in Oslo"}, {"content": "Lives in Prague"})
    assert (oldest.verb, oldest.before) == ("add", None)
    assert newest.at >= oldest.at


def test_every_kind_of_change_can_be_undone(memory: Memory) -> None:
    added = memory.add("Lives in Oslo", user_id="a")
    memory.update(added.id, "Lives in Prague", user_id="a")
    memory.undo(user_id="a")
    assert memory.get(added.id, user_id="a").content == "Lives in Oslo"
    memory.delete(added.id, user_id="a")
    assert not memory.search("Oslo", user_id="a")
    memory.undo(user_id="a")
    assert memory.search("Oslo", user_id="a")[0].id == added.id
    memory.undo(user_id="a")
    assert memory.get(added.id, user_id="a").status is Status.FORGOTTEN
    with pytest.raises(NotFound, match="nothing to undo"):
        memory.undo(user_id="a")


def test_undo_reverts_a_whole_exchange(tmp_path: Path) -> None:
    exchange = [{"role": "user", "content": "My cat is called Tom"}, {"role": "assistant", "content": "Hello Tom"}]
    # What is learned behind would be the last change.
    with Memory(settings=Settings(home=tmp_path, learn="off")) as memory:
        memory.remember(exchange, user_id="a", session_id="s")
        assert len(memory.undo(user_id="a")) == 2
        assert not memory.search("cat Tom", user_id="a")


def test_delete_all_leaves_other_users_and_projects(memory: Memory) -> None:
    for user, project in (("a", "x"), ("a", "y"), ("b", "x")):
        memory.add(f"note of {user} in {project}", user_id=user, project_id=project)
    assert memory.delete_all(user_id="a", project_id="x") == 1
    assert [record.scope.project for record in memory.get_all(user_id="a")] == ["y"]
    assert len(memory.get_all(user_id="b")) == 1


def test_filters_narrow_a_search_before_it_is_ranked(memory: Memory) -> None:
    for number in range(50):
        memory.add(
            f"meeting note {number}", user_id="a", importance=number / 50, tags=["even"] if number % 2 == 0 else []
        )
    hits = memory.search("meeting note", user_id="a", limit=5, filters={"tags": "even", "importance": {"lt": 0.1}})
    assert {hit.memory for hit in hits} == {"meeting note 0", "meeting note 2", "meeting note 4"}
    with pytest.raises(InvalidFilter, match="unknown field"):
        memory.search("x", user_id="a", filters={"colour": "red"})


def test_pages_go_through_everything_once(memory: Memory) -> None:
    for number in range(25):
        memory.add(f"note {number}", user_id="a")
    seen, cursor = [], None
    while True:
        page = memory.get_all(user_id="a", limit=10, cursor=cursor)
        seen += [record.content for record in page]
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == [f"note {number}" for number in reversed(range(25))]


def test_expired_memories_are_not_found(memory: Memory) -> None:
    memory.add("parking ticket valid", user_id="a", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    memory.add("parking garage code", user_id="a", expires_at=datetime.now(UTC) + timedelta(hours=1))
    assert [hit.memory for hit in memory.search("parking", user_id="a")] == ["parking garage code"]


def test_an_export_can_be_imported_elsewhere_and_twice(memory: Memory, tmp_path: Path) -> None:
    memory.add("Lives in Oslo", user_id="a", key="city", value="Oslo", tags=["home"])
    memory.add("Lives in Prague", user_id="a", key="city", value="Prague")
    memory.delete(memory.add("Was forgotten", user_id="a").id, user_id="a")
    memory.remember([{"role": "user", "content": "Hello there"}, {"role": "assistant", "content": "Hi"}],
                    user_id="a", session_id="s")  # fmt: skip
    lines = list(memory.export())
    with Memory(home=tmp_path / "other") as other:
        assert other.import_(lines).added == 5
        assert other.import_(lines).added == 0
        assert list(other.export()) == lines
        assert [turn.content for turn in other.sessions.turns(user_id="a", session_id="s")] == ["Hello there", "Hi"]


def test_an_import_can_be_assigned_to_another_user(memory: Memory) -> None:
    memory.add("Likes tea", user_id="a")
    memory.import_(list(memory.export(user_id="a")), user_id="b")
    assert [record.content for record in memory.get_all(user_id="b")] == ["Likes tea"]


def test_a_bad_line_stops_an_import_and_says_which(memory: Memory) -> None:
    with pytest.raises(InvalidInput, match="line 2"):
        memory.import_([{"memory": "fine", "user_id": "a"}, {"memory": "", "user_id": "a"}])


def test_the_same_idempotency_key_has_one_effect(memory: Memory) -> None:
    first = memory.add("Likes tea", user_id="a", idempotency_key="k1")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: memory.add("Likes tea", user_id="a", idempotency_key="k1"), range(100)))
    assert {(answer.id, answer.changed) for answer in answers} == {(first.id, True)}
    with pytest.raises(IdempotencyReuse):
        memory.add("Likes coffee", user_id="a", idempotency_key="k1")
    assert len(memory.get_all(user_id="a")) == 1


def test_two_openings_of_one_file_agree_at_once(memory: Memory, tmp_path: Path) -> None:
    with Memory(home=tmp_path) as other:
        for number in range(8):
            writer, reader = (memory, other) if number % 2 else (other, memory)
            added = writer.add(f"The secret word number {number} is zebra{number}", user_id="a")
            assert reader.search(f"zebra{number}", user_id="a")[0].id == added.id
            writer.delete(added.id, user_id="a")
            assert added.id not in {hit.id for hit in reader.search(f"zebra{number}", user_id="a")}


def test_memories_are_there_after_closing_and_opening(tmp_path: Path) -> None:
    with Memory(home=tmp_path) as memory:
        added = memory.add("Likes tea", user_id="a")
    with Memory(home=tmp_path) as memory:
        assert memory.search("tea", user_id="a")[0].id == added.id


async def test_memory_works_inside_a_running_loop(tmp_path: Path) -> None:
    with Memory(home=tmp_path) as memory:
        memory.add("Likes tea", user_id="a")
        assert memory.search("tea", user_id="a")[0].memory == "Likes tea"


async def test_async_memory_serves_concurrent_calls(tmp_path: Path) -> None:
    async with AsyncMemory(home=tmp_path) as memory:
        await asyncio.gather(*(memory.add(f"note {n}", user_id=f"user {n % 7}") for n in range(200)))
        hits = await asyncio.gather(*(memory.search("note", user_id=f"user {n}", limit=100) for n in range(7)))
    assert sum(len(result) for result in hits) == 200


def public_names(value: object) -> set[str]:
    return {name for name in dir(value) if not name.startswith("_")}


def test_memory_and_its_namespaces_have_the_methods_and_signatures_of_the_async_ones() -> None:
    blocking, awaited = Memory(), AsyncMemory()
    # The service belongs to the loop of the asynchronous memory.
    assert public_names(blocking) == public_names(awaited) - {"service"}
    namespaces = {name for name, value in vars(blocking).items() if isinstance(value, Namespace)}
    assert len(namespaces) == 7
    pairs = [(blocking, awaited), *((getattr(blocking, name), getattr(awaited, name)) for name in namespaces)]
    for one, other in pairs:
        assert public_names(one) == public_names(other) - {"service"}
        for name in public_names(one) - namespaces - {"settings"}:
            own, counterpart = getattr(one, name), getattr(other, name)
            assert inspect.signature(own).parameters.keys() == inspect.signature(counterpart).parameters.keys()
            assert inspect.getdoc(own) == inspect.getdoc(counterpart)


def test_add_learns_from_messages_before_it_returns(memory: Memory) -> None:
    messages = [{"role": "user", "content": "My name is Alex and I live in Lisbon"}]
    result = memory.add(messages, user_id="alex")
    assert [turn.content for turn in result] == [messages[0]["content"]]
    assert result.job is not None
    assert result.job.state == "done"
    assert any("Lisbon" in record.content for record in memory.get_all(user_id="alex"))
    with pytest.raises(InvalidInput, match="only with a text"):
        memory.add(messages, user_id="alex", category="fact")  # type: ignore[call-overload]


def test_acting_as_sets_the_author_in_history(memory: Memory) -> None:
    maria = memory.acting_as("maria", why="by phone")
    added = maria.add("Likes tea", user_id="alex")
    memory.update(added.id, "Likes green tea", user_id="alex")
    maria.acting_as("jo").reviews.propose("Likes coffee", user_id="alex")
    authors = [(line.by.who, line.by.why) for line in memory.history(user_id="alex")]
    assert authors == [("jo", ""), ("python", ""), ("maria", "by phone")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("a\0b", "NUL character at position 1"),
        ("a\ud83d", "lone surrogate"),
        ("x" * (2**20 + 1), "1,048,577 bytes; the limit is 1,048,576"),
        (None, "must be text"),
    ],
)
def test_an_invalid_text_is_rejected_with_a_reason(memory: Memory, text: str, complaint: str) -> None:
    with pytest.raises(InvalidText, match=complaint):
        memory.add(text, user_id="a")
    assert not memory.get_all(user_id="a")


def test_a_mebibyte_of_text_is_stored_and_found(memory: Memory) -> None:
    text = "needle " + "hay " * (2**18 - 2)
    added = memory.add(text, user_id="a")
    assert memory.get(added.id, user_id="a").content == text
    assert memory.search("needle", user_id="a")[0].id == added.id


@pytest.mark.parametrize(
    "fields",
    [
        {"user_id": ""},
        {"user_id": "a\nb"},
        {"user_id": "x" * 301},
        {"category": "nonsense"},
        {"category": "turn"},
        {"importance": 1.5},
        {"importance": "high"},
        {"level": "session"},
        {"level": "project"},
        {"tags": "one"},
        {"metadata": {"a": float("nan")}},
        {"metadata": {"a": object()}},
        {"occurred_at": "yesterday"},
        {"embedding": [1.0, 2.0]},
        {"colour": "red"},
    ],
)
def test_an_invalid_field_is_rejected(memory: Memory, fields: dict) -> None:
    with pytest.raises(InvalidInput):
        memory.add("Likes tea", **{"user_id": "a", **fields})


def test_limits_are_checked(memory: Memory) -> None:
    for limit in (-1, 1001, 1.5, True):
        with pytest.raises(InvalidInput, match="limit"):
            memory.get_all(user_id="a", limit=limit)


def test_an_embedding_of_the_caller_is_used(tmp_path: Path) -> None:
    with Memory(home=tmp_path, embedder=FakeEmbedder(4, fail_with=ModelUnavailable("not needed"))) as memory:
        memory.add("first", user_id="a", embedding=[1, 0, 0, 0])
        memory.add("second", user_id="a", embedding=[0, 3, 0, 0])
        hits = memory.search("anything", user_id="a", embedding=[0.1, 1, 0, 0], min_score=0)
        assert hits[0].memory == "second"
        assert [round(hit.scores["dense"], 2) for hit in hits] == [1.0, 0.1]
        assert hits.notes == ()
        with pytest.raises(InvalidInput, match="4"):
            memory.search("anything", user_id="a", embedding=[1, 0])


def test_a_failing_embedder_loses_no_memory(tmp_path: Path) -> None:
    embedder = FakeEmbedder(16)
    # A worker would make the missing vectors in the background.
    with Memory(settings=Settings(home=tmp_path, learn="off", worker=False), embedder=embedder) as memory:
        embedder.fail_with = ModelUnavailable("down")
        added = memory.add("Likes green tea", user_id="a")
        memory.remember("I live in Oslo", user_id="a", session_id="s")
        embedder.fail_with = None
        assert memory.search("tea", user_id="a")[0].id == added.id
        assert memory.search("tea", user_id="a")[0].scores["dense"] == 0
        assert memory.admin.reembed() == 2
        assert memory.search("tea", user_id="a")[0].scores["dense"] > 0


def test_search_works_by_words_while_the_embedder_is_unavailable(tmp_path: Path) -> None:
    embedder = FakeEmbedder(16)
    with Memory(home=tmp_path, embedder=embedder) as memory:
        added = memory.add("Likes green tea", user_id="a")
        embedder.fail_with = ModelUnavailable("down")
        hits = memory.search("tea", user_id="a")
        assert hits[0].id == added.id
        assert "by words alone" in hits.notes[0]


def test_vectors_of_two_models_are_not_mixed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Memory(home=tmp_path, embedder=FakeEmbedder(16, name="old")) as memory:
        memory.import_(
            {"memory": f"Likes tea number {number}", "user_id": f"user {number % 3}"} for number in range(300)
        )
    with Memory(home=tmp_path, embedder=FakeEmbedder(32, name="new")) as memory:
        assert "recollect reembed" in caplog.text
        [before, *_] = memory.search("tea number 7", user_id="user 1")
        assert before.scores["dense"] == 0
        assert before.scores["lexical"] > 0
        seen: list[int] = []
        assert memory.admin.reembed(seen.append) == 300
        assert seen[-1] == 300
        assert memory.search("tea number 7", user_id="user 1")[0].scores["dense"] > 0
        assert memory.admin.stats()["vectors"] == 600
        assert memory.admin.reembed(drop=True) == 0
        assert memory.admin.stats()["vectors"] == 300


def test_the_ledger_is_for_its_owner_alone(memory: Memory, tmp_path: Path) -> None:
    memory.add("Likes tea", user_id="a")
    files = list(tmp_path.glob("recollect.db*"))
    assert files
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)


def test_the_database_of_another_program_is_rejected_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "invoices.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE invoices (number)")
    with pytest.raises(StoreCorrupt, match="invoices"):
        Memory(str(file)).open()
    with contextlib.closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("invoices",)]
