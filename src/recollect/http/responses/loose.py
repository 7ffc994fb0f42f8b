"""JSON that nobody promised the shape of: what is there if it is what one looks for, else nothing."""

from __future__ import annotations

from typing import Any


def an_object(value: object) -> dict[str, Any]:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[dict[str, Any]]:
    """The objects in a list; none in anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def a_text(value: object) -> str:
    """The text, or an empty one."""
    return value if isinstance(value, str) else ""
