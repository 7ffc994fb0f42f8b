"""Convert values to plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import date
from enum import StrEnum
from typing import Any


def to_plain(value: Any) -> Any:
    """Convert a time, an enum, a sequence, a mapping or an object with `to_dict`; return other values unchanged."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [to_plain(each) for each in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value.to_dict() if hasattr(value, "to_dict") else value


def plain_fields(instance: Any, *, omit: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of a dataclass instance as plain values; the ids of a `scope` are fields of their own."""
    plain: dict[str, Any] = {}
    for each in fields(instance):
        if each.name not in omit:
            value = to_plain(getattr(instance, each.name))
            plain |= value if each.name == "scope" else {each.name: value}
    return plain


class PlainValue:
    """A dataclass that converts itself to plain values for JSON."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return plain_fields(self)
