"""What text we accept: anything a person can write, nothing that a store cannot keep."""

from __future__ import annotations

import re

from recollect.errors import InvalidInput, InvalidText

MAX_TEXT_BYTES = 1 << 20
MAX_ID_CHARS = 300

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f\x80-\x9f\u2028\u2029\ud800-\udfff]")


def validate_text(text: object, *, name: str = "content") -> str:
    """The text itself, or an InvalidText that says what is wrong with it and where."""
    if not isinstance(text, str):
        raise InvalidText(f"{name} must be text, not {type(text).__name__}")
    if not text.strip():
        raise InvalidText(f"{name} is empty; give it at least one visible character")
    bad = _UNSTORABLE.search(text)
    if bad:
        kind = "a NUL character" if bad.group() == "\0" else "a lone surrogate (half of a character)"
        raise InvalidText(f"{name} holds {kind} at position {bad.start()}; remove it and try again")
    # Four bytes is the most a character takes, so short texts need not be encoded to be measured.
    if len(text) * 4 > MAX_TEXT_BYTES and (size := len(text.encode())) > MAX_TEXT_BYTES:
        raise InvalidText(f"{name} is {size:,} bytes; the limit is {MAX_TEXT_BYTES:,}: split it into parts")
    return text


def is_storable(text: str) -> bool:
    """Whether every store can keep each character of the text."""
    return not _UNSTORABLE.search(text)


def repair_text(text: str) -> str:
    """The text with characters no store can keep replaced, cut to the limit; for what must not be refused."""
    text = _UNSTORABLE.sub("\ufffd", text)
    if len(text) * 4 > MAX_TEXT_BYTES and len(text.encode()) > MAX_TEXT_BYTES:
        text = text.encode()[:MAX_TEXT_BYTES].decode(errors="ignore")
    return text


def validate_id(value: object, *, name: str) -> str:
    """The id itself, or an InvalidInput; control characters could forge log lines and keys."""
    if not isinstance(value, str):
        raise InvalidInput(f"{name} must be text, not {type(value).__name__}")
    if len(value) > MAX_ID_CHARS:
        raise InvalidInput(f"{name} is {len(value)} characters long; the limit is {MAX_ID_CHARS}")
    bad = _CONTROL.search(value)
    if bad:
        raise InvalidInput(f"{name} holds a control character at position {bad.start()}; remove it")
    return value
