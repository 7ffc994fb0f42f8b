"""What a header says: most who send one write UTF-8, while the framework reads Latin-1."""

from __future__ import annotations

from typing import Any

from pydantic import BeforeValidator


def decode_header(value: bytes) -> str:
    """The text of a header."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def redecode_header(value: Any) -> Any:
    """The text of a header that was read as Latin-1, as it was sent."""
    if not isinstance(value, str) or value.isascii():
        return value
    return decode_header(value.encode("latin-1", "replace"))


DecodedHeader = BeforeValidator(redecode_header)
