"""What a batch comes to, worked out without a store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recollect.errors import Conflict, InvalidInput, InvalidText, NotFound
from recollect.ledger.codec import UPDATABLE_FIELDS, check_storable, from_plain, to_plain
from recollect.ledger.plan import ExistingRecords, check_owner, claiming_records, plan
from recollect.model.change import Add, Change, ChangeKind, Forget, Restore, Supersede, Update
from recollect.model.memory import MemoryRecord, Status
from tests.support.ledger_samples import ANN, BOB, NOON, ODD_TEXTS, direction, full_memory, memory
from tests.support.linear_time import assert_linear


def plan_state(*records: MemoryRecord) -> ExistingRecords:
    stored = ExistingRecords()
    for record in records:
        stored.add(record)
    return stored


def test_a_plan_contains_only_the_requested_changes() -> None:
    assert plan([], plan_state(memory()), at=NOON).is_empty


def test_a_memory_added_and_changed_in_one_batch_is_written_once() -> None:
    fresh = memory("tea")
    planned = plan([Add(fresh), Update(fresh.id, {"content": "milk"})], plan_state(), at=NOON)
    assert planned.added[fresh.id].content == "milk"
    assert planned.changed == {}
    assert [(line.verb, line.version) for line in planned.lines] == [(ChangeKind.ADD, 1), (ChangeKind.UPDATE, 2)]


def test_the_vector_of_a_text_that_changes_in_the_same_batch_is_dropped() -> None:
    fresh = memory("tea")
    planned = plan([Add(fresh, direction(1)), Update(fresh.id, {"content": "milk"})], plan_state(), at=NOON)
    assert planned.vectors == {}


def test_the_old_value_of_a_key_is_superseded_before_the_new_one_is_added() -> None:
    old, new = memory("Paris", key="city"), memory("Rome", key="city")
    planned = plan([Supersede(old.id, new)], plan_state(old), at=NOON)
    assert planned.changed[old.id].superseded_by == new.id
    assert planned.added == {new.id: new}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (Update("unknown", {}), NotFound),
        (Forget("one", expected_version=2), Conflict),
        (Update("one", {"id": "two"}), InvalidInput),
        (Update("one", {"access_count": 5}), InvalidInput),
        (Update("one", {"content": "a\0b"}), InvalidText),
        (Update("one", {"tags": "tea"}), InvalidInput),
        (Supersede("one", memory(id="one")), Conflict),
        (Restore("gone"), Conflict),
    ],
    ids=str,
)
def test_impossible_changes_are_refused(change: Change, error: type[Exception]) -> None:
    stored = plan_state(memory("tea", id="one"), memory("TEA", id="gone", status=Status.FORGOTTEN))
    with pytest.raises(error):
        plan([change], stored, at=NOON)


def test_claiming_records_are_all_states_a_memory_passes_through() -> None:
    one, gone = memory("tea", id="one"), memory("milk", id="gone", status=Status.FORGOTTEN)
    fresh = memory("water")
    changes = [
        Update("one", {"content": "x"}),
        Update("one", {"key": "k"}),
        Forget("one"),
        Restore("gone"),
        Add(fresh),
    ]
    results = claiming_records(changes, {"one": one, "gone": gone})
    assert [(each.content, each.key) for each in results] == [
        ("x", None),
        ("x", "k"),
        ("milk", None),
        ("water", None),
    ]


@pytest.mark.parametrize("bad", [Update("unknown", {}), Update("one", {"content": None}), Update("one", {"no": 1})])
def test_claiming_records_leave_impossible_changes_to_the_plan(bad: Change) -> None:
    fresh = memory("water")
    assert claiming_records([Add(fresh), bad, Add(memory("never"))], {"one": memory(id="one")}) == [fresh]


def test_a_memory_of_another_user_is_refused() -> None:
    check_owner(ANN, [Add(memory()), Forget("any")])
    for change in (Add(memory(scope=BOB)), Supersede("any", memory(scope=BOB))):
        with pytest.raises(InvalidInput, match="another user"):
            check_owner(ANN, [change])


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
def test_fields_come_back_from_their_plain_values(text: str) -> None:
    record = full_memory(text)
    check_storable(record)
    fields = {name: getattr(record, name) for name in UPDATABLE_FIELDS}
    assert from_plain(to_plain(fields)) == fields


@pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", "\\" * 7 + "u0000", "\\ud800", "\\n"])
def test_text_that_only_looks_like_an_escape_can_be_stored(text: str) -> None:
    check_storable(memory(text, metadata={text: [text]}, tags=(text,)))
    with pytest.raises(InvalidText):
        check_storable(memory("tea", metadata={text: [text + "\0"]}))


def test_checking_a_long_text_takes_linear_time() -> None:
    for unit in ("\\", "\\\\u000", "\\u0000", "u0000", "é"):
        assert_linear(lambda text: check_storable(replace(memory(), content=text)), unit)
