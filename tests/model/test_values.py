"""Values: ids, times, texts, scopes, memories."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import InvalidInput, InvalidText
from recollect.model.ids import new_id
from recollect.model.memory import Category, text_hash
from recollect.model.scope import Level, Scope
from recollect.model.text import MAX_TEXT_BYTES, is_storable, repair_text, validate_id, validate_text
from recollect.model.times import as_utc, from_micros, now, to_micros
from recollect.model.turn import Role, Turn
from tests.support.ledger_samples import NOON, ODD_IDS, ODD_TEXTS, full_memory, memory

scope_ids = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=4) | st.sampled_from(
    ["a", "b", "a:b", "p", "s", "ps", "a/b", " "]
)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)


def test_ids_sort_in_the_order_they_were_made() -> None:
    made = [new_id() for _ in range(10_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_are_unique_across_threads() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [id for batch in pool.map(lambda _: [new_id() for _ in range(2000)], range(8)) for id in batch]
    assert len(set(made)) == 16_000


def test_an_id_is_a_uuid_of_version_7_with_its_time() -> None:
    # A clock that runs behind what was already given out is what the next test is for.
    made = UUID(new_id())
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert abs((made.int >> 80) / 1000 - time.time()) < 60


def test_ids_keep_rising_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = new_id()
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    assert before < new_id() < new_id()


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_survives_conversion_to_microseconds(at: datetime) -> None:
    assert from_micros(to_micros(at)) == at


@pytest.mark.parametrize(
    ("value", "at"),
    [
        ("2026-03-15T10:00:00Z", datetime(2026, 3, 15, 10, tzinfo=UTC)),
        ("2026-03-15T10:00:00+02:00", datetime(2026, 3, 15, 8, tzinfo=UTC)),
        ("2026-03-15", datetime(2026, 3, 15, tzinfo=UTC)),
        (datetime(2026, 3, 15), datetime(2026, 3, 15, tzinfo=UTC)),
        (datetime(2026, 3, 15, tzinfo=timezone(timedelta(hours=-5))), datetime(2026, 3, 15, 5, tzinfo=UTC)),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (-0.5, datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC)),
    ],
    ids=str,
)
def test_times_are_converted_to_utc(value: Any, at: datetime) -> None:
    read = as_utc(value)
    assert (read, read.utcoffset()) == (at, timedelta(0))


@pytest.mark.parametrize(
    "value",
    ["", "soon", "2026-13-01", None, True, [], float("nan"), float("inf"), 1e30, "0001-01-01T00:00:00+05:00", "\0"],
)
def test_an_invalid_time_is_rejected(value: Any) -> None:
    with pytest.raises(InvalidInput, match="born_at is not a time"):
        as_utc(value, name="born_at")


def test_now_is_aware() -> None:
    assert now().utcoffset() == timedelta(0)


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
def test_unusual_texts_are_accepted(text: str) -> None:
    assert validate_text(text) == repair_text(text) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n\t\u3000", "empty"),
        ("a\0b", "NUL character at position 1"),
        ("ab\ud83d", "lone surrogate .* at position 2"),
        ("x" * (MAX_TEXT_BYTES + 1), "1,048,577 bytes"),
        ("茶" * (MAX_TEXT_BYTES // 3 + 1), "split it"),
        (b"tea", "must be text, not bytes"),
        (None, "must be text"),
        (5, "must be text"),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_an_invalid_text_is_rejected_with_a_reason(text: Any, reason: str) -> None:
    with pytest.raises(InvalidText, match=reason):
        validate_text(text)


def test_a_text_of_exactly_the_limit_is_accepted() -> None:
    assert validate_text("x" * MAX_TEXT_BYTES)
    assert validate_text("茶" * (MAX_TEXT_BYTES // 3))


@given(st.text(st.characters(), max_size=50))
def test_a_repaired_text_can_be_stored(text: str) -> None:
    assert is_storable(repair_text(text))
    assert is_storable(text) is (repair_text(text) == text)


def test_a_repaired_text_is_cut_between_characters() -> None:
    mended = repair_text("a" + "茶" * MAX_TEXT_BYTES)
    assert MAX_TEXT_BYTES - 3 < len(mended.encode()) <= MAX_TEXT_BYTES
    assert mended.endswith("茶")


def test_unusual_ids_are_accepted() -> None:
    assert [validate_id(id, name="user_id") for id in ODD_IDS] == list(ODD_IDS)


@pytest.mark.parametrize("id", ["a\n", "\0", "a\x1fb", "\x7f", "a\x85", "\u2028", "\ud800", "x" * 301, None, 7, b"a"])
def test_an_id_with_control_characters_is_rejected(id: Any) -> None:
    with pytest.raises(InvalidInput, match="project_id"):
        Scope("ann", id)


@pytest.mark.parametrize("user", ["", " ", "\u3000"])
def test_a_scope_needs_a_user(user: str) -> None:
    with pytest.raises(InvalidInput, match="`user_id` is empty"):
        Scope(user)


@given(scope_ids, scope_ids, scope_ids, scope_ids, st.sampled_from(Level), st.sampled_from(Level))
def test_visibility_keys_are_unambiguous(p1: str, s1: str, p2: str, s2: str, one: Level, two: Level) -> None:
    parts = {Level.USER: 0, Level.PROJECT: 1, Level.SESSION: 2}
    same = one is two and (p1, s1)[: parts[one]] == (p2, s2)[: parts[two]]
    assert (Scope("ann", p1, s1).visibility_key(one) == Scope("ann", p2, s2).visibility_key(two)) is same


@given(scope_ids, scope_ids)
def test_a_scope_sees_its_user_project_and_session(project: str, session: str) -> None:
    scope = Scope("ann", project, session)
    levels = [Level.USER] + [Level.PROJECT] * bool(project) + [Level.SESSION] * bool(session)
    assert scope.visible_keys == tuple(scope.visibility_key(level) for level in levels)


def test_the_default_level_is_the_project_if_there_is_one() -> None:
    assert Scope("ann", "p", "s").default_level is Level.PROJECT
    assert Scope("ann", "", "s").default_level is Level.USER


@pytest.mark.parametrize(("scope", "level"), [(Scope("ann"), Level.PROJECT), (Scope("ann", "p"), Level.SESSION)])
def test_a_level_needs_its_id(scope: Scope, level: Level) -> None:
    with pytest.raises(InvalidInput, match=f"needs a {level}_id"):
        scope.check_level(level)
    assert scope.check_level(Level.USER) is Level.USER


@given(texts)
def test_the_hash_ignores_case_spacing_and_unicode_form(text: str) -> None:
    assert text_hash(text) == text_hash(f"  {text}\n")
    assert text_hash("Straße  Café") == text_hash("strasse cafe\u0301")


@given(st.none() | texts, texts, st.none() | texts, texts)
def test_the_fingerprint_separates_key_and_content(
    key: str | None, words: str, other_key: str | None, other: str
) -> None:
    one, two = memory(words, key=key), memory(other, key=other_key)
    same = text_hash(key or "") == text_hash(other_key or "") and text_hash(words) == text_hash(other)
    assert (one.fingerprint == two.fingerprint) is same


def test_moving_words_between_key_and_content_changes_the_fingerprint() -> None:
    messages = [
        memory("a b c"),
        memory("b c", key="a"),
        memory("c", key="a b"),
        memory("a b c", category=Category.EVENT),
    ]
    assert len({each.fingerprint for each in messages}) == 4


def test_turns_have_no_fingerprint() -> None:
    assert memory(category=Category.TURN).fingerprint is None


def test_a_memory_converts_to_json() -> None:
    record = full_memory("tea", scope=Scope("ann", "p", "s"))
    plain = json.loads(json.dumps(record.to_dict()))
    assert (plain["memory"], plain["user_id"], plain["project_id"], plain["session_id"]) == ("tea", "ann", "p", "s")
    assert plain["created_at"] == record.created_at.isoformat()
    assert plain["tags"] == list(record.tags)
    assert Scope("ann").project == ""
    assert memory().to_dict()["project_id"] is None


def test_a_turn_becomes_a_memory_of_its_session() -> None:
    text = Turn(id="t", scope=Scope("ann", "p", "s"), role=Role.USER, content="hello", said_at=NOON, name="Ann")
    record = text.as_memory()
    assert (record.id, record.scope, record.category, record.created_at) == ("t", text.scope, Category.TURN, NOON)
    assert (record.detail["role"], record.detail["name"]) == ("user", "Ann")
