"""LLM usage by user, day, model and step."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal, TypeAlias, get_args

from recollect.errors import InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.plain import plain_fields

Part: TypeAlias = Literal["user", "day", "model", "step"]
PARTS: tuple[str, ...] = get_args(Part)
_FIRST_DAY = date(1970, 1, 1)


@frozen_dataclass(kw_only=True)
class Usage:
    """LLM calls and tokens of a group; the parts that it is not grouped by are None. Days are in UTC."""

    user: str | None = None
    day: date | None = None
    model: str | None = None
    step: str | None = None
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"user_id": self.user, **plain_fields(self, omit=("user",))}


@frozen_dataclass
class SpentToday:
    """LLM tokens and calls of a user, or of all users, since midnight UTC."""

    tokens: int = 0
    calls: int = 0


@frozen_dataclass(kw_only=True)
class LlmQuota:
    """The maximum of LLM tokens per day, for each user and for all of them; 0 for no limit.

    `refusal` is a reason to call no LLM at all, whatever was spent.
    """

    user: int = 0
    everyone: int = 0
    refusal: str = ""


def day_number(at: datetime) -> int:
    """Return the number of days from 1970 to the day of a time, in UTC."""
    return (at.astimezone(UTC).date() - _FIRST_DAY).days


def day_from_number(number: int) -> date:
    """Return the day that is so many days after 1970."""
    return _FIRST_DAY + timedelta(days=number)


def validate_parts(by: Sequence[str]) -> tuple[str, ...]:
    """Return the parts that usage is grouped by, in a fixed order; raise InvalidInput for an unknown part."""
    if wrong := set(by) - set(PARTS):
        raise InvalidInput(f"usage cannot be grouped by {', '.join(sorted(wrong))}; use {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in by)
