"""Times are aware UTC datetimes in Python and microseconds since 1970 in a store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from recollect.errors import InvalidInput

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def to_micros(at: datetime) -> int:
    """Return the microseconds since 1970, exactly."""
    return (at - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the time that is so many microseconds after 1970."""
    return _EPOCH + timedelta(microseconds=micros)


def micros_or_none(at: datetime | None) -> int | None:
    """Convert a time that may be missing for a store."""
    return None if at is None else to_micros(at)


def time_or_none(micros: int | None) -> datetime | None:
    """Convert a time of a store that may be missing."""
    return None if micros is None else from_micros(micros)


def as_utc(value: datetime | str | float, *, name: str = "time") -> datetime:
    """Convert a datetime, an ISO 8601 text or seconds since 1970; a missing zone means UTC."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            value = datetime.fromtimestamp(value, UTC)
        if isinstance(value, datetime):
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        pass
    raise InvalidInput(f"{name} is not a time: {value!r}; give ISO 8601 such as 2026-03-15T10:00:00Z")
