"""When a memory is valid."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from recollect.model.memory import Status, valid_at
from tests.support.ledger_samples import NOON, memory

DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("fields", "first", "end"),
    [
        ({"occurred_at": NOON - 999 * DAY}, NOON, None),
        ({"valid_from": NOON - DAY}, NOON - DAY, None),
        ({"valid_from": NOON + DAY, "valid_to": NOON + 2 * DAY}, NOON + DAY, NOON + 2 * DAY),
        ({"expires_at": NOON + DAY}, NOON, NOON + DAY),
        ({"valid_to": NOON + 2 * DAY, "expires_at": NOON + DAY}, NOON, NOON + DAY),
        ({"status": Status.SUPERSEDED, "valid_to": NOON + DAY, "updated_at": NOON + 9 * DAY}, NOON, NOON + DAY),
        ({"status": Status.SUPERSEDED, "updated_at": NOON + DAY}, NOON, NOON + DAY),
    ],
)
def test_a_memory_is_valid_from_its_first_instant_until_its_end(fields: dict[str, Any], first: Any, end: Any) -> None:
    record = memory(**fields)
    assert not valid_at(record, first - TICK)
    assert valid_at(record, first)
    assert valid_at(record, first + 99 * DAY if end is None else end - TICK)
    assert end is None or not valid_at(record, end)


@pytest.mark.parametrize("status", [Status.FORGOTTEN, Status.REVIEW])
def test_a_forgotten_memory_and_one_in_review_are_valid_at_no_moment(status: Status) -> None:
    assert not valid_at(memory(status=status), NOON + DAY)
