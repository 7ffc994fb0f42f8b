"""Conversations as text for a prompt: JSON lines between delimiters, with long turns shortened."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping

# Fits into a context of 8,192 tokens, with the answer.
MAX_CONVERSATION_CHARS = 16_000
# Of each turn, however many there are.
MIN_TURN_CHARS = 200

_CUT = " […] "


def new_delimiter() -> str:
    """Return a random line, so that no message can contain it and close the block."""
    return f"=== {secrets.token_hex(16)} ==="


def json_line(values: Mapping[str, object]) -> str:
    """Return the values as one line of JSON, with all letters as they are."""
    return json.dumps(values, ensure_ascii=False)


def max_chars_per_turn(turns: int) -> int:
    """Return the maximum length of each of these many turns."""
    return max(MIN_TURN_CHARS, MAX_CONVERSATION_CHARS // max(1, turns))


def shorten(text: str, chars: int) -> str:
    """Return the beginning and the end of a long text."""
    if len(text) <= chars:
        return text
    half = max(1, (chars - len(_CUT)) // 2)
    return f"{text[:half]}{_CUT}{text[-half:]}"
