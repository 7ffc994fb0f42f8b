"""What was said as a model is shown it: as lines of data between fences, cut where it is long."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping

# What small models with a context of 8,192 tokens can read, the answer included.
MAX_CONVERSATION_CHARS = 16_000
# However many turns there are, so much of each is shown.
MIN_TURN_CHARS = 200

_CUT = " […] "


def new_delimiter() -> str:
    """A line that nothing which was said can end: fresh, and never known to anyone before."""
    return f"=== {secrets.token_hex(16)} ==="


def json_line(values: Mapping[str, object]) -> str:
    """One line of JSON, readable in every language."""
    return json.dumps(values, ensure_ascii=False)


def max_chars_per_turn(turns: int) -> int:
    """How much is shown of each of so many turns."""
    return max(MIN_TURN_CHARS, MAX_CONVERSATION_CHARS // max(1, turns))


def shorten(text: str, chars: int) -> str:
    """The beginning and the end of a long text: what matters is rarely in the middle."""
    if len(text) <= chars:
        return text
    half = max(1, (chars - len(_CUT)) // 2)
    return f"{text[:half]}{_CUT}{text[-half:]}"
