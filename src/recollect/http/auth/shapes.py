"""Refusals before a door is reached, in the words of the door: a client reads one shape of errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

# Of a status, the name of an error and its message.
ErrorFormat: TypeAlias = Callable[[int, str, str], Mapping[str, Any]]
_WORD_START = re.compile("(?<!^)(?=[A-Z])")


def openai_error(status: int, code: str, message: str) -> Mapping[str, Any]:
    """As OpenAI's clients read it."""
    kind = "invalid_request_error" if status < 500 else "api_error"
    code = _WORD_START.sub("_", code).lower()
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def api_error(status: int, code: str, message: str) -> Mapping[str, Any]:
    """As our own API tells of errors."""
    return {"error": {"code": code, "message": message, "retryable": status in (429, 503)}}


def combined_error(status: int, code: str, message: str) -> Mapping[str, Any]:
    """As OpenAI's clients and our own read it, for who refuses before it matters whose path it is."""
    error = openai_error(status, code, message)["error"] | {"retryable": status in (429, 503)}
    return {"error": error | ({"type": "rate_limit_error"} if status == 429 else {})}


# By how a path begins; the longest that fits counts.
PROXY_ERROR_FORMATS: Mapping[str, ErrorFormat] = {
    "/v1/": openai_error,
    "/chat/completions": openai_error,
}


def error_format_for(path: str, formats: Mapping[str, ErrorFormat], default: ErrorFormat = api_error) -> ErrorFormat:
    """How errors look there."""
    matching = [prefix for prefix in formats if path.startswith(prefix)]
    return formats[max(matching, key=len)] if matching else default
