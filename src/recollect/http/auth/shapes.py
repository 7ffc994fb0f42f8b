"""Refusals before a door is reached, in the words of the door: a client reads one shape of errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

# Of a status, the name of an error and its message.
Shape: TypeAlias = Callable[[int, str, str], Mapping[str, Any]]
_WORD = re.compile("(?<!^)(?=[A-Z])")


def as_openai(status: int, code: str, message: str) -> Mapping[str, Any]:
    """As OpenAI's clients read it."""
    kind = "invalid_request_error" if status < 500 else "api_error"
    code = _WORD.sub("_", code).lower()
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def as_ours(status: int, code: str, message: str) -> Mapping[str, Any]:
    """As our own API tells of errors."""
    return {"error": {"code": code, "message": message, "retryable": status in (429, 503)}}


def as_both(status: int, code: str, message: str) -> Mapping[str, Any]:
    """As OpenAI's clients and our own read it, for who refuses before it matters whose path it is."""
    told = as_openai(status, code, message)["error"] | {"retryable": status in (429, 503)}
    return {"error": told | ({"type": "rate_limit_error"} if status == 429 else {})}


# By how a path begins; the longest that fits counts.
SHAPES: Mapping[str, Shape] = {
    "/v1/": as_openai,
    "/chat/completions": as_openai,
}


def shape_of(path: str, shapes: Mapping[str, Shape], otherwise: Shape = as_ours) -> Shape:
    """How errors look there."""
    fitting = [prefix for prefix in shapes if path.startswith(prefix)]
    return shapes[max(fitting, key=len)] if fitting else otherwise
