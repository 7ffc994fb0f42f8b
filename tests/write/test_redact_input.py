"""What callers give is kept without secrets and without what nobody sees, by whichever door it comes in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory, Status
from recollect.errors import InvalidInput, InvalidText
from recollect.model.memory import MemoryRecord
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.write.draft import validate_fields
from recollect.write.redact import Redactor
from tests.support.cli_runner import Cli
from tests.support.secret_samples import samples

SECRET = "ghp_R7bK2mXq9TzLw4VfN8cYd1HsJ5pGe3Ua6oBi"
TEXT = f"The deploy token is {SECRET}"
CLEAN = "The deploy token is [redacted: GitHub token]"
ANN = "ann"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(home=tmp_path, embedder=FakeEmbedder(16)) as memory:
        yield memory


def waiting(memory: Memory) -> str:
    """A memory that waits for review."""
    memory.import_([{"id": "waits", "memory": "Always copy bob", "user_id": ANN, "status": "review"}])
    return "waits"


def by_add(memory: Memory, **options: Any) -> MemoryRecord:
    return memory.add(options.pop("content"), user_id=ANN, **options).record


def by_update(memory: Memory, **options: Any) -> MemoryRecord:
    return memory.update(memory.add("Something else", user_id=ANN).id, user_id=ANN, **options).record


def by_edit_review(memory: Memory, **options: Any) -> MemoryRecord:
    return memory.reviews.edit(waiting(memory), user_id=ANN, **options).record


def by_import(memory: Memory, **options: Any) -> MemoryRecord:
    memory.import_([{"id": "new", "memory": options.pop("content"), "user_id": ANN, **options}])
    return memory.get("new", user_id=ANN)


WRITERS = pytest.mark.parametrize("door", [by_add, by_update, by_edit_review, by_import])
WriteFunction = Callable[..., MemoryRecord]


def left_in(home: Path, secret: str) -> list[str]:
    """The files that hold the secret."""
    return [path.name for path in home.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


@WRITERS
def test_a_secret_is_kept_out_of_everything_that_has_words(
    tmp_path: Path, memory: Memory, door: WriteFunction
) -> None:
    nested = {"note": TEXT, "list": [{"deep": SECRET}], SECRET: "named by it", "n": 7, "ok": True, "none": None}
    record = door(
        memory,
        content=TEXT,
        key="deploy",
        value=SECRET,
        tags=[SECRET, "ci"],
        source=TEXT,
        metadata=nested,
        detail=nested,
    )
    assert SECRET not in json.dumps(record.to_dict())
    assert (record.content, record.value, record.tags[1]) == (CLEAN, "[redacted: GitHub token]", "ci")
    assert (record.metadata["n"], record.metadata["ok"], record.metadata["none"]) == (7, True, None)
    assert SECRET not in json.dumps([line.to_dict() for line in memory.history(user_id=ANN)])
    memory.close()
    assert left_in(tmp_path, SECRET) == []


@WRITERS
def test_what_a_value_is_called_tells_that_it_is_a_secret(memory: Memory, door: WriteFunction) -> None:
    record = door(
        memory,
        content="The wifi at home",
        key="wifi password",
        value="sunshine",
        metadata={"db_password": "sunshine", "pin": 4821, "card": 4111111111111111, "ssn": "457555462"},
    )
    assert record.value == "[redacted: password]"
    assert dict(record.metadata) == {
        "db_password": "[redacted: password]",
        "pin": "[redacted: PIN]",
        "card": "[redacted: card number]",
        "ssn": "[redacted: social security number]",
    }


@WRITERS
def test_what_is_no_secret_stays_as_it_was_given(memory: Memory, door: WriteFunction) -> None:
    plain = {
        "cache_key": "8f14e45fceea167a5a36dedd4bea2543", "order": "112-4456789-1234567", "phone": 4155552671,
        "at": 1710498600000, "share": 0.25, "ids": ["550e8400-e29b-41d4-a716-446655440000"], "keyboard": "dvorak",
    }  # fmt: skip
    text = "Grüße aus Köln: the flight is on 2024-03-15, seat 12A, call +49 170 1234567."
    record = door(memory, content=text, tags=["travel", "t-2024"], metadata=plain, source="notes.md")
    assert (record.content, record.tags, dict(record.metadata)) == (text, ("travel", "t-2024"), plain)


def test_at_least_95_percent_of_secrets_are_kept_out_of_what_is_added() -> None:
    stored = missed = 0
    for _, text, secret in samples(5):
        clean, _ = Redactor().redact_fields({"content": text, "metadata": {"note": text}})
        stored += 1
        missed += secret in json.dumps(clean, ensure_ascii=False)
    assert stored >= 100
    assert missed <= 0.05 * stored


class TestReportedRedactions:
    def test_the_outcome_names_the_kinds_that_were_found(self, memory: Memory) -> None:
        added = memory.add(TEXT, user_id=ANN, metadata={"pin": "4821"})
        assert added.redacted == ("GitHub token", "PIN")
        assert added.to_dict()["redacted"] == ["GitHub token", "PIN"]
        assert memory.add("Likes tea", user_id=ANN).redacted == ()
        assert memory.update(added.id, "my password is hunter2", user_id=ANN).redacted == ("password",)
        assert memory.reviews.edit(waiting(memory), TEXT, user_id=ANN).redacted == ("GitHub token",)

    def test_an_import_says_of_how_many(self, memory: Memory) -> None:
        lines = [{"memory": text, "user_id": ANN} for text in (TEXT, "Likes tea", "my PIN is 4821")]
        assert memory.import_(lines).redacted == 2

    def test_a_turn_too(self, memory: Memory) -> None:
        remembered = memory.remember(f"My token is {SECRET}", user_id=ANN, session_id="s")
        assert (remembered.redacted, remembered.to_dict()["redacted"]) == (("GitHub token",), ["GitHub token"])

    def test_and_the_command_line(self, tmp_path: Path) -> None:
        cli = Cli(tmp_path)
        output = cli("add", TEXT, "--user", ANN).output
        assert "Kept out of it: GitHub token." in output
        [id] = [each["id"] for each in cli.json("list", "--user", ANN)["results"]]
        assert "Kept out of it: password." in cli("update", id, "my password is hunter2", "--user", ANN).output
        assert "Kept out of it: PIN." in cli("remember", "my PIN is 4821", "--user", ANN, "--session", "s").output
        line = json.dumps({"memory": "The card is 4111 1111 1111 1111", "user_id": ANN})
        assert "Secrets were kept out of 1." in cli("import", input=line).output
        assert "hunter2" not in cli("history", "--user", ANN).output


class TestSwitchedOff:
    def test_memories_keep_secrets_where_that_is_wanted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RECOLLECT_REDACT_MEMORIES", "false")
        with Memory(home=tmp_path, embedder=FakeEmbedder(16)) as memory:
            added = memory.acting_as("python", why=TEXT).add(TEXT, user_id=ANN, metadata={"password": "hunter2"})
            assert (added.memory, added.redacted, dict(added.record.metadata)) == (TEXT, (), {"password": "hunter2"})
            assert memory.update(added.id, f"Now {SECRET}", user_id=ANN).memory == f"Now {SECRET}"
            assert memory.import_([{"memory": TEXT, "user_id": "bob"}]).redacted == 0
            # Each has its own switch: what is said goes by the other.
            [turn] = memory.remember(TEXT, user_id=ANN, session_id="s")
            assert SECRET not in turn.content

    def test_what_is_learned_never_holds_them(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RECOLLECT_REDACT_MEMORIES", "false")
        monkeypatch.setenv("RECOLLECT_REDACT_TURNS", "false")
        with Memory(home=tmp_path, embedder=FakeEmbedder(16)) as memory:
            remembered = memory.remember(
                f"I live in Oslo and my token is {SECRET}", user_id=ANN, session_id="s", wait=True
            )
            assert SECRET in remembered[0].content
            facts = [each.to_dict() for each in memory.get_all(user_id=ANN)]
            assert facts
            assert SECRET not in json.dumps(facts)


class TestAround:
    def test_a_vector_of_words_that_are_not_kept_is_not_kept_either(self, memory: Memory) -> None:
        astray = [0.0] * 15 + [1.0]
        memory.add(TEXT, user_id=ANN, embedding=astray)
        [own] = memory.search(CLEAN, user_id=ANN, min_score=0, explain=True)
        [other] = memory.search("x", user_id=ANN, min_score=0, embedding=astray, explain=True)
        assert own.scores["semantic"] > other.scores["semantic"]

    def test_reasons_are_kept_without_secrets(self, memory: Memory) -> None:
        added = memory.acting_as("python", why=TEXT).add("Likes tea", user_id=ANN)
        memory.acting_as("python", why=TEXT).update(added.id, "Likes green tea", user_id=ANN)
        memory.acting_as("python", why=TEXT).delete(added.id, user_id=ANN)
        memory.acting_as("python", why=TEXT).restore(added.id, user_id=ANN)
        memory.acting_as("python", why=TEXT).undo(user_id=ANN)
        memory.acting_as("python", why=TEXT).delete_all(user_id=ANN)
        assert {line.by.why for line in memory.history(user_id=ANN)} == {CLEAN}

    def test_a_new_value_of_a_secret_key_is_kept_out_like_the_first(self, memory: Memory) -> None:
        fact = memory.add(user_id=ANN, key="wifi password", value="sunshine")
        assert fact.memory == "wifi password: [redacted: password]"
        changed = memory.update(fact.id, user_id=ANN, value="moonlight").record
        assert (changed.value, changed.content) == ("[redacted: password]", "wifi password: [redacted: password]")

    def test_importing_what_was_exported_redacts_nothing_twice(self, memory: Memory, tmp_path: Path) -> None:
        memory.add(TEXT, user_id=ANN, key="api_token", value=SECRET, metadata={"password": "hunter2"})
        memory.remember("my password is hunter2", user_id=ANN, session_id="s")
        lines = list(memory.export())
        with Memory(home=tmp_path / "other", embedder=FakeEmbedder(16)) as other:
            assert other.import_(lines).redacted == 0
            assert list(other.export()) == lines

    def test_imported_turns_go_by_the_setting_of_turns(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        line = {"id": "t", "memory": TEXT, "user_id": ANN, "session_id": "s", "category": "turn"}
        monkeypatch.setenv("RECOLLECT_REDACT_MEMORIES", "false")
        with Memory(home=tmp_path, embedder=FakeEmbedder(16)) as memory:
            assert memory.import_([line]).redacted == 1
            assert memory.get("t", user_id=ANN).content == CLEAN

    def test_metadata_too_deep_to_look_into_is_refused(self, memory: Memory) -> None:
        deep: dict[str, Any] = {}
        for _ in range(700):
            deep = {"in": deep}
        with pytest.raises(InvalidInput):
            memory.add("Likes tea", user_id=ANN, metadata=deep)


HIDDEN = {
    "zero width": "I like\u200b gre\u200ben te\u2060a",
    "byte order mark": "\ufeffI like green tea",
    "right to left": "I like \u202egreen\u202c tea",
    "tags": "I like green tea" + "".join(chr(0xE0000 + ord(letter)) for letter in "and obey"),
    "soft hyphens": "I like gre\u00aden tea",
    "controls": "I like green\x08 tea\x1b",
    "selectors": "I like green tea" + "\U000e0121\U000e0150",
}
NEEDED = [
    "family 👩‍👩‍👧‍👦, pilot 👩🏽‍✈️, heart ❤️, flag 🏴󠁧󠁢󠁳󠁣󠁴󠁿, rainbow 🏳️‍🌈, keycap 1️⃣",
    "می‌خواهم به خانه‌ام بروم",
    "क्‍ष and ශ්‍රී ලංකා",
    "Zoë’s café, naïve, 東京, ไทย",
]


class TestWhatNobodySees:
    @pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
    def test_it_is_left_out_of_what_is_kept(self, text: str) -> None:
        fields = validate_fields({"content": text, "value": text})
        assert (fields["content"], fields["value"]) == ("I like green tea", "I like green tea")

    @pytest.mark.parametrize("text", NEEDED)
    def test_what_scripts_and_emoji_are_written_with_stays(self, text: str) -> None:
        fields = validate_fields({"content": text, "tags": [text[:30]]})
        assert (fields["content"], fields["tags"]) == (text, (text[:30],))

    @WRITERS
    def test_it_is_left_out_by_every_door(self, memory: Memory, door: WriteFunction) -> None:
        text = HIDDEN["zero width"]
        record = door(memory, content=text, value=text, key=f"{text[:3]}", source="notes", tags=[NEEDED[0][:30]])
        assert (record.content, record.value) == ("I like green tea", "I like green tea")
        assert record.tags == (NEEDED[0][:30],)

    @WRITERS
    def test_text_that_cannot_be_kept_or_seen_is_refused(self, memory: Memory, door: WriteFunction) -> None:
        for text in ("a\0b", "half \ud83d", "\u200b\u2060", "\U000e0041\U000e0042"):
            with pytest.raises(InvalidInput) as raised:
                door(memory, content=text)
            assert isinstance(raised.value, InvalidText) or "line 1" in str(raised.value)

    def test_it_hides_no_secret(self, memory: Memory) -> None:
        hidden = SECRET[:9] + "\u200b" + SECRET[9:]
        assert memory.add(f"token {hidden}", user_id=ANN, metadata={"a": hidden}).redacted == ("GitHub token",)
        [turn] = memory.remember(f"my token is {hidden}", user_id=ANN, session_id="s")
        assert SECRET[12:30] not in turn.content
        stored = json.dumps([each.to_dict() for each in memory.get_all(user_id=ANN, turns=True)])
        assert SECRET[12:30] not in stored

    def test_a_turn_without_secrets_is_kept_as_it_was_said(self, memory: Memory) -> None:
        [turn] = memory.remember(HIDDEN["zero width"], user_id=ANN, session_id="s")
        assert turn.content == HIDDEN["zero width"]


def test_a_waiting_memory_goes_on_waiting_after_an_edit(memory: Memory) -> None:
    assert memory.reviews.edit(waiting(memory), TEXT, user_id=ANN).record.status is Status.REVIEW
