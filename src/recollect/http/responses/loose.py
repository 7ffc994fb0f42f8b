"""JSON that nobody promised the shape of: what is there if it is what one looks for, else nothing."""

from __future__ import annotations

from typing import Any


def as_object(value: object) -> dict[str, Any]:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> list[dict[str, Any]]:
    """The objects in a list; none in anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def as_text(value: object) -> str:
    """The text, or an empty one."""
    return value if isinstance(value, str) else ""
