"""Input of callers is stored without secrets and invisible characters, through every interface."""

from __future__ import annotations

import asyncio
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
    """Add a memory that waits for review, and return its id."""
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


WRITERS = pytest.mark.parametrize("write", [by_add, by_update, by_edit_review, by_import])
WriteFunction = Callable[..., MemoryRecord]


def left_in(home: Path, secret: str) -> list[str]:
    """Return the names of the files that contain the secret."""
    return [path.name for path in home.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


@WRITERS
def test_a_secret_is_redacted_in_every_text_field(tmp_path: Path, memory: Memory, write: WriteFunction) -> None:
    nested = {"note": TEXT, "list": [{"deep": SECRET}], SECRET: "named by it", "n": 7, "ok": True, "none": None}
    record = write(
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
def test_a_value_whose_name_is_that_of_a_secret_is_redacted(memory: Memory, write: WriteFunction) -> None:
    record = write(
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
def test_other_values_are_unchanged(memory: Memory, write: WriteFunction) -> None:
    plain = {
        "cache_key": "8f14e45fceea167a5a36dedd4bea2543", "order": "112-4456789-1234567", "phone": 4155552671,
        "at": 1710498600000, "share": 0.25, "ids": ["550e8400-e29b-41d4-a716-446655440000"], "keyboard": "dvorak",
    }  # fmt: skip
    text = "Grüße aus Köln: the flight is on 2024-03-15, seat 12A, call +49 170 1234567."
    record = write(memory, content=text, tags=["travel", "t-2024"], metadata=plain, source="notes.md")
    assert (record.content, record.tags, dict(record.metadata)) == (text, ("travel", "t-2024"), plain)


def test_at_least_95_percent_of_secrets_are_redacted() -> None:
    stored = missed = 0
    for _, text, secret in samples(5):
        clean, _ = asyncio.run(Redactor().redact_fields({"content": text, "metadata": {"note": text}}))
        stored += 1
        missed += secret in json.dumps(clean, ensure_ascii=False)
    assert stored >= 100
    assert missed <= 0.05 * stored


class TestReportedRedactions:
    def test_the_outcome_names_the_redacted_kinds(self, memory: Memory) -> None:
        added = memory.add(TEXT, user_id=ANN, metadata={"pin": "4821"})
        assert added.redacted == ("GitHub token", "PIN")
        assert added.to_dict()["redacted"] == ["GitHub token", "PIN"]
        assert memory.add("Likes tea", user_id=ANN).redacted == ()
        assert memory.update(added.id, "my password is hunter2", user_id=ANN).redacted == ("password",)
        assert memory.reviews.edit(waiting(memory), TEXT, user_id=ANN).redacted == ("GitHub token",)

    def test_an_import_reports_the_number_of_redacted_memories(self, memory: Memory) -> None:
        lines = [{"memory": text, "user_id": ANN} for text in (TEXT, "Likes tea", "my PIN is 4821")]
        assert memory.import_(lines).redacted == 2

    def test_a_turn_reports_the_redacted_kinds(self, memory: Memory) -> None:
        remembered = memory.remember(f"My token is {SECRET}", user_id=ANN, session_id="s")
        assert (remembered.redacted, remembered.to_dict()["redacted"]) == (("GitHub token",), ["GitHub token"])

    def test_the_command_line_reports_the_redacted_kinds(self, tmp_path: Path) -> None:
        cli = Cli(tmp_path)
        output = cli("add", TEXT, "--user", ANN).output
        assert "Kept out of it: GitHub token." in output
        [id] = [each["id"] for each in cli.json("list", "--user", ANN)["results"]]
        assert "Kept out of it: password." in cli("update", id, "my password is hunter2", "--user", ANN).output
        assert "Kept out of it: PIN." in cli("remember", "my PIN is 4821", "--user", ANN, "--session", "s").output
        line = json.dumps({"memory": "The card is 4111 1111 1111 1111", "user_id": ANN})
        assert "Secrets were kept out of 1." in cli("import", input=line).output
        assert "hunter2" not in cli("history", "--user", ANN).output


class TestDisabled:
    def test_memories_are_stored_unchanged_if_redaction_is_disabled(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RECOLLECT_REDACT_MEMORIES", "false")
        with Memory(home=tmp_path, embedder=FakeEmbedder(16)) as memory:
            added = memory.acting_as("python", why=TEXT).add(TEXT, user_id=ANN, metadata={"password": "hunter2"})
            assert (added.memory, added.redacted, dict(added.record.metadata)) == (TEXT, (), {"password": "hunter2"})
            assert memory.update(added.id, f"Now {SECRET}", user_id=ANN).memory == f"Now {SECRET}"
            assert memory.import_([{"memory": TEXT, "user_id": "bob"}]).redacted == 0
            # Turns have their own setting.
            [turn] = memory.remember(TEXT, user_id=ANN, session_id="s")
            assert SECRET not in turn.content

    def test_extracted_facts_are_always_redacted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


class TestRelatedData:
    def test_the_vector_of_an_unredacted_text_is_not_stored(self, memory: Memory) -> None:
        astray = [0.0] * 15 + [1.0]
        memory.add(TEXT, user_id=ANN, embedding=astray)
        [own] = memory.search(CLEAN, user_id=ANN, min_score=0, explain=True)
        [other] = memory.search("x", user_id=ANN, min_score=0, embedding=astray, explain=True)
        assert own.scores["semantic"] > other.scores["semantic"]

    def test_reasons_are_redacted(self, memory: Memory) -> None:
        added = memory.acting_as("python", why=TEXT).add("Likes tea", user_id=ANN)
        memory.acting_as("python", why=TEXT).update(added.id, "Likes green tea", user_id=ANN)
        memory.acting_as("python", why=TEXT).delete(added.id, user_id=ANN)
        memory.acting_as("python", why=TEXT).restore(added.id, user_id=ANN)
        memory.acting_as("python", why=TEXT).undo(user_id=ANN)
        memory.acting_as("python", why=TEXT).delete_all(user_id=ANN)
        assert {line.by.why for line in memory.history(user_id=ANN)} == {CLEAN}

    def test_a_new_value_of_a_secret_key_is_redacted(self, memory: Memory) -> None:
        fact = memory.add(user_id=ANN, key="wifi password", value="sunshine")
        assert fact.memory == "wifi password: [redacted: password]"
        changed = memory.update(fact.id, user_id=ANN, value="moonlight").record
        assert (changed.value, changed.content) == ("[redacted: password]", "wifi password: [redacted: password]")

    def test_importing_an_export_redacts_nothing_twice(self, memory: Memory, tmp_path: Path) -> None:
        memory.add(TEXT, user_id=ANN, key="api_token", value=SECRET, metadata={"password": "hunter2"})
        memory.remember("my password is hunter2", user_id=ANN, session_id="s")
        lines = list(memory.export())
        with Memory(home=tmp_path / "other", embedder=FakeEmbedder(16)) as other:
            assert other.import_(lines).redacted == 0
            assert list(other.export()) == lines

    def test_imported_turns_use_the_setting_of_turns(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        line = {"id": "t", "memory": TEXT, "user_id": ANN, "session_id": "s", "category": "turn"}
        monkeypatch.setenv("RECOLLECT_REDACT_MEMORIES", "false")
        with Memory(home=tmp_path, embedder=FakeEmbedder(16)) as memory:
            assert memory.import_([line]).redacted == 1
            assert memory.get("t", user_id=ANN).content == CLEAN

    def test_metadata_is_redacted_at_every_level_up_to_the_maximum(self, memory: Memory) -> None:
        deep: dict[str, Any] = {"note": TEXT}
        for _ in range(63):
            deep = {"in": deep}
        stored = memory.add("Likes tea", user_id=ANN, metadata=deep).record.metadata
        assert SECRET not in str(stored)
        assert CLEAN in str(stored)
        for too_deep in ({"in": deep}, {"in": [[deep]]}):
            with pytest.raises(InvalidInput, match="at most 64 levels"):
                memory.add("Likes tea", user_id=ANN, metadata=too_deep)


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


class TestInvisibleCharacters:
    @pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
    def test_they_are_removed(self, text: str) -> None:
        fields = validate_fields({"content": text, "value": text})
        assert (fields["content"], fields["value"]) == ("I like green tea", "I like green tea")

    @pytest.mark.parametrize("text", NEEDED)
    def test_joiners_of_scripts_and_emoji_stay(self, text: str) -> None:
        fields = validate_fields({"content": text, "tags": [text[:30]]})
        assert (fields["content"], fields["tags"]) == (text, (text[:30],))

    @WRITERS
    def test_they_are_removed_by_every_writer(self, memory: Memory, write: WriteFunction) -> None:
        text = HIDDEN["zero width"]
        record = write(memory, content=text, value=text, key=f"{text[:3]}", source="notes", tags=[NEEDED[0][:30]])
        assert (record.content, record.value) == ("I like green tea", "I like green tea")
        assert record.tags == (NEEDED[0][:30],)

    @WRITERS
    def test_unstorable_or_invisible_text_is_rejected(self, memory: Memory, write: WriteFunction) -> None:
        for text in ("a\0b", "half \ud83d", "\u200b\u2060", "\U000e0041\U000e0042"):
            with pytest.raises(InvalidInput) as raised:
                write(memory, content=text)
            assert isinstance(raised.value, InvalidText) or "line 1" in str(raised.value)

    def test_they_hide_no_secret(self, memory: Memory) -> None:
        hidden = SECRET[:9] + "\u200b" + SECRET[9:]
        assert memory.add(f"token {hidden}", user_id=ANN, metadata={"a": hidden}).redacted == ("GitHub token",)
        [turn] = memory.remember(f"my token is {hidden}", user_id=ANN, session_id="s")
        assert SECRET[12:30] not in turn.content
        stored = json.dumps([each.to_dict() for each in memory.get_all(user_id=ANN, turns=True)])
        assert SECRET[12:30] not in stored

    def test_a_turn_without_secrets_is_unchanged(self, memory: Memory) -> None:
        [turn] = memory.remember(HIDDEN["zero width"], user_id=ANN, session_id="s")
        assert turn.content == HIDDEN["zero width"]


def test_an_edited_memory_still_waits_for_review(memory: Memory) -> None:
    assert memory.reviews.edit(waiting(memory), TEXT, user_id=ANN).record.status is Status.REVIEW
