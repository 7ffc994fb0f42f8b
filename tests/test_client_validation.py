"""Invalid arguments are rejected with a reason on every backend; messages are always stored."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect import Memory
from recollect.config.settings import Settings, load
from recollect.errors import InvalidInput, InvalidSettings
from recollect.testing.fake_embedder import FakeEmbedder


@pytest.fixture(params=["", "memory:"], ids=["sqlite", "memory"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    with Memory(request.param or None, home=tmp_path, embedder=FakeEmbedder(8)) as memory:
        yield memory


READ_ONLY_FIELDS = {
    "status": "superseded",
    "superseded_by": "nonsense",
    "prompt_digest": "abc",
    "created_at": "2024-01-01",
    "updated_at": "2024-01-01",
    "last_accessed_at": "2024-01-01",
    "access_count": 3,
    "version": 7,
    "id": "mine",
}


@pytest.mark.parametrize("name", READ_ONLY_FIELDS)
def test_read_only_fields_cannot_be_set(memory: Memory, name: str) -> None:
    fields: dict[str, Any] = {name: READ_ONLY_FIELDS[name]}
    with pytest.raises(InvalidInput, match=f"'{name}' is not a settable field"):
        memory.add("Likes tea", user_id="a", **fields)
    added = memory.add("Likes tea", user_id="a")
    with pytest.raises(InvalidInput, match=f"'{name}' is not a settable field"):
        memory.update(added.id, user_id="a", **fields)
    assert memory.get(added.id, user_id="a") == added.record


def test_a_memory_cannot_be_made_a_turn(memory: Memory) -> None:
    added = memory.add("Likes tea", user_id="a")
    with pytest.raises(InvalidInput, match="turns are added by remember"):
        memory.update(added.id, user_id="a", category="turn")


@pytest.mark.parametrize("bad", ["\ud800", "a\0b", "x" * 2001, 5])
def test_authors_reasons_and_idempotency_keys_are_validated(memory: Memory, bad: Any) -> None:
    with pytest.raises(InvalidInput, match="by"):
        memory.acting_as(bad)
    with pytest.raises(InvalidInput, match="why"):
        memory.acting_as("maria", why=bad)
    with pytest.raises(InvalidInput, match="idempotency_key"):
        memory.add("Likes tea", user_id="a", idempotency_key=bad)
    assert not memory.history(user_id="a")


@pytest.mark.parametrize("bad", ["two\nlines", "x" * 301])
def test_authors_and_idempotency_keys_are_short_and_on_one_line(memory: Memory, bad: Any) -> None:
    with pytest.raises(InvalidInput, match="by"):
        memory.acting_as(bad)
    with pytest.raises(InvalidInput, match="idempotency_key"):
        memory.add("Likes tea", user_id="a", idempotency_key=bad)


@pytest.mark.parametrize("bad", [2**70, -1, 1.5, "1", True])
def test_numbers_in_history_and_sessions_are_checked(memory: Memory, bad: Any) -> None:
    added = memory.add("Likes tea", user_id="a")
    with pytest.raises(InvalidInput, match="`after` must be a whole number"):
        memory.sessions.turns(user_id="a", session_id="s", after=bad)
    with pytest.raises(InvalidInput, match="`before` must be a whole number"):
        memory.history(user_id="a", before=bad)
    with pytest.raises(InvalidInput, match="`change_id` must be a whole number"):
        memory.undo(bad, user_id="a")
    with pytest.raises(InvalidInput, match="`expected_version` must be a whole number"):
        memory.update(added.id, "Likes coffee", user_id="a", expected_version=bad)


def test_a_limit_of_0_is_not_the_default(memory: Memory) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        memory.search("tea", user_id="a", limit=0)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ({"version": "abc"}, "version is a whole number"),
        ({"version": -5}, "version is a whole number"),
        ({"version": 0}, "version is a whole number"),
        ({"version": True}, "version is a whole number"),
        ({"access_count": 10**30}, "access_count is a whole number"),
        ({"access_count": 1.5}, "access_count is a whole number"),
        ({"category": "turn", "session_id": "s", "detail": {"role": "alien"}}, "role of a turn is user or assistant"),
        (
            {"category": "turn", "session_id": "s", "detail": {"role": ["user"]}},
            "role of a turn is user or assistant",
        ),
        ({"category": "turn", "session_id": "s", "detail": {"position": "q"}}, "position of a turn"),
        ({"category": "turn", "session_id": "s", "detail": {"name": 5}}, "name of the speaker of a turn"),
        ({"status": "gone"}, "unknown status"),
    ],
)
def test_an_invalid_line_is_rejected_with_its_number(memory: Memory, line: dict[str, Any], complaint: str) -> None:
    fine = {"memory": "Likes tea", "user_id": "a"}
    with pytest.raises(InvalidInput, match=f"line 2: .*{complaint}"):
        memory.import_([fine, {**fine, **line}])


def test_metadata_must_not_contain_nul(memory: Memory) -> None:
    for fine in ("\\u0000", "\\\\u0000", "a\\b\\u0000"):
        added = memory.add(f"Pattern {fine!r}", user_id="a", metadata={"pattern": fine})
        assert memory.get(added.id, user_id="a").metadata == {"pattern": fine}
    for bad in ("\0", "\\\0", {"\0": 1}):
        with pytest.raises(InvalidInput, match="NUL"):
            memory.add("Likes tea", user_id="a", metadata={"pattern": bad})


@pytest.mark.parametrize("bad", ["yesterday", 1e300, float("nan"), {"at": 5}, True])
def test_a_message_with_an_invalid_timestamp_is_stored(
    memory: Memory, bad: Any, caplog: pytest.LogCaptureFixture
) -> None:
    message = {"role": "user", "content": "I moved to Lisbon", "timestamp": bad}
    [turn] = memory.remember(message, user_id="a", session_id="s")
    assert abs((datetime.now(UTC) - turn.said_at).total_seconds()) < 60
    assert "`timestamp` of a message is not a time" in caplog.text


INVALID_MESSAGES = [
    ([], "`messages` is empty"),
    (5, "`messages` must be a text or a list of {'role', 'content'}, got int"),
    (["hello"], "`messages[0]` must be {'role', 'content'}, got str"),
    ([{"role": "user", "content": 5}], "`messages[0].content` must be a text or a list of parts, got int"),
    ({"role": "user", "content": {"text": "x"}}, "`messages[0].content` must be a text or a list of parts, got dict"),
    ([{"role": "user", "content": ["x"]}], "`messages[0].content[0]` must be {'type', 'text'}, got str"),
    ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "`messages[0].content[0].text` must be text, got"),
]


@pytest.mark.parametrize(("messages", "complaint"), INVALID_MESSAGES)
def test_invalid_messages_are_rejected_with_their_field(memory: Memory, messages: Any, complaint: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        memory.remember(messages, user_id="a")
    assert complaint in str(caught.value)
    assert not memory.sessions.list(user_id="a")


def test_messages_to_remember_need_a_role_and_a_text_is_not_blank(memory: Memory) -> None:
    fine = {"role": "user", "content": "I moved to Lisbon"}
    for bad in ({"content": "x"}, {"role": 5, "content": "x"}):
        with pytest.raises(InvalidInput, match=r"`messages\[1\].role` must be a text such as 'user', got"):
            memory.remember([fine, bad], user_id="a")
    with pytest.raises(InvalidInput, match="`messages` is empty"):
        memory.remember(" \n", user_id="a")
    assert not memory.sessions.list(user_id="a")


@pytest.mark.parametrize(
    "failure", [InvalidSettings("401: the key was refused"), InvalidInput("400"), OSError("gone")]
)
def test_memories_and_turns_are_stored_if_the_embedder_fails(
    tmp_path: Path, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = FakeEmbedder(16)
    # What is learned from the turn later would be a third text to embed.
    with Memory(embedder=embedder, settings=Settings(home=tmp_path, worker=False)) as memory:
        embedder.fail_with = failure
        memory.add("Likes green tea", user_id="a")
        memory.remember("I moved to Lisbon", user_id="a", session_id="s")
        assert str(failure) in caplog.text
        hits = memory.search("Lisbon", user_id="a")
        assert [hit.memory for hit in hits] == ["I moved to Lisbon"]
        assert hits.notes[0].startswith("found by words alone: ")
        assert str(failure) in hits.notes[0]
        embedder.fail_with = None
        assert memory.admin.reembed() == 2


@pytest.mark.parametrize(
    "answer",
    [np.ones((1, 3), np.float32), np.ones((2, 16), np.float32), np.full((1, 16), np.nan), None, [["x"] * 16]],
    ids=["too short", "too many", "not numbers", "nothing", "texts"],
)
def test_turns_are_stored_if_the_embedder_returns_invalid_vectors(tmp_path: Path, answer: Any) -> None:
    class Confused(FakeEmbedder):
        async def embed(self, *_: Any, **__: Any) -> Any:
            return answer

    with Memory(home=tmp_path, embedder=Confused(16)) as memory:
        memory.remember("I moved to Lisbon", user_id="a", session_id="s")
        hits = memory.search("Lisbon", user_id="a")
        assert [hit.memory for hit in hits] == ["I moved to Lisbon"]
        assert hits.notes


def test_home_cannot_be_set_in_the_settings_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('home = "/elsewhere"\n')
    with pytest.raises(InvalidSettings, match=r"home cannot be set in .*config\.toml.*RECOLLECT_HOME"):
        load({"home": tmp_path}, environ={})
    with pytest.raises(InvalidSettings, match="home cannot be set"):
        load(file=tmp_path / "config.toml", environ={})
